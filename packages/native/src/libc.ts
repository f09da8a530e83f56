import { closeSync, existsSync, fstatSync, openSync, statSync, type BigIntStats } from 'node:fs'
import { createRequire } from 'node:module'
import { getSystemErrorName } from 'node:util'
import { tsrError } from '@tsrun/core/errors'
import { isMainThread } from 'node:worker_threads'
import type * as Koffi from 'koffi'

type KoffiModule = typeof Koffi

type Library = ReturnType<KoffiModule['load']>

interface Texts {
  readonly str: string
  readonly 'str *': readonly (string | null)[]
}

/** The types of the arguments for a list of C parameters such as `size_t, int`. */
type Values<List extends string> = List extends ''
  ? []
  : List extends `${infer First}, ${infer Rest}`
    ? [...Values<First>, ...Values<Rest>]
    : [List extends keyof Texts ? Texts[List] : number]

/** A function with this C prototype. Pointers are passed as plain addresses (numbers), see `addressOf`. */
type NativeFunction<Prototype> = Prototype extends `${string}(${infer List})`
  ? (...args: Values<List>) => number
  : never

interface Loaded {
  readonly koffi: KoffiModule
  readonly libc: Library
}

let outcome: Loaded | { readonly reason: string } | undefined

/** Loads koffi, on any platform. @returns koffi, or the reason why it cannot be loaded */
export function loadKoffi(): KoffiModule | string {
  if (process.env['TSRUN_NATIVE'] === 'off') return 'TSRUN_NATIVE=off'
  const require = createRequire(import.meta.url)
  try {
    return loadAddon(require) ?? (require('koffi') as KoffiModule)
  } catch (error) {
    return `the package koffi cannot be loaded: ${firstLine(error)}`
  }
}

const MUSL_LINKERS: Readonly<Record<string, string | undefined>> = {
  arm64: '/lib/ld-musl-aarch64.so.1',
  x64: '/lib/ld-musl-x86_64.so.1',
}

/**
 * Loads the addon of koffi for glibc. Koffi itself first reads the headers of Node's executable to find
 * the C library, which takes 4 ms of CPU time in each thread.
 *
 * @returns undefined on platforms where only koffi can select the addon
 */
function loadAddon(require: NodeJS.Require): KoffiModule | undefined {
  const { platform, arch } = process
  const linker = MUSL_LINKERS[arch]
  if (platform !== 'linux' || hasOwnNumbers || linker === undefined) return undefined
  try {
    if (existsSync(linker)) return undefined
    const addon = `@koromix/koffi-linux-${arch}/linux_${arch}/koffi.node`
    return createRequire(require.resolve('koffi'))(addon) as KoffiModule
  } catch {
    return undefined
  }
}

/**
 * Loads a library. If its name is a path, it must not be a FIFO or a device, because opening these may
 * block forever.
 *
 * @throws Error if it cannot be loaded
 */
export function openLibrary(
  koffi: KoffiModule,
  name: string,
  options: Parameters<KoffiModule['load']>[1] = {},
): Library {
  if (name.includes('/') && statSync(name, { throwIfNoEntry: false })?.isFile() === false)
    throw new Error(`${name} is not a regular file`)
  return koffi.load(name, options)
}

function load(): Loaded | { readonly reason: string } {
  if (process.platform !== 'linux') return { reason: `platform ${process.platform}, only linux` }
  const koffi = loadKoffi()
  if (typeof koffi === 'string') return { reason: koffi }
  if (isMainThread) process.on('exit', openStandardStreams)
  for (const name of [
    'libc.so.6',
    `libc.musl-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.so.1`,
  ]) {
    try {
      return { koffi, libc: koffi.load(name) }
    } catch {
      // Try the next C library.
    }
  }
  return { reason: 'no C library found (tried glibc and musl)' }
}

/**
 * When a process exits, koffi closes standard output and error. If that fails because the program has
 * already closed them, koffi reports the failure on the same stream and deadlocks.
 */
function openStandardStreams(): void {
  for (const fd of [1, 2]) {
    try {
      statusOf(fd)
    } catch {
      // open() returns the lowest free descriptor, which is 0 if standard input is closed, too.
      const opened = openSync('/dev/null', 'r+')
      if (opened < fd) openSync('/dev/null', 'r+')
      else if (opened > fd) closeSync(opened)
    }
  }
}

function loaded(): Loaded {
  outcome ??= load()
  if ('reason' in outcome) throw tsrError('ERR_TSR_NATIVE_UNAVAILABLE', { reason: outcome.reason })
  return outcome
}

/** Whether the bindings work on this host, and the reason if they do not. */
export function isAvailable(): { available: true } | { available: false; reason: string } {
  outcome ??= load()
  return 'reason' in outcome ? { available: false, reason: outcome.reason } : { available: true }
}

/** Returns this process as a library, with all symbols that its executable exports. */
export function loadProcess(): Library {
  return loaded().koffi.load(null)
}

/** The address of the first byte of `view`. The memory must outlive the address. */
export function addressOf(view: ArrayBufferView): number {
  return Number(loaded().koffi.address(view))
}

/** Linux error numbers that callers compare with. */
export const EINTR = 4
/** `errno`: the call would block. */
export const EAGAIN = 11
/** `errno`: the other end is closed. */
export const EPIPE = 32
/** `errno`: another socket uses the address. */
export const EADDRINUSE = 98
/** `errno`: the peer has reset the connection. */
export const ECONNRESET = 104
/** `errno`: the connection has timed out. */
export const ETIMEDOUT = 110
/** `errno`: no process listens at the address. */
export const ECONNREFUSED = 111
/** `errno`: the connection is being made. */
export const EINPROGRESS = 115

/** The name of an error number: ECONNRESET for 104. */
export function errnoName(errno: number): string {
  return getSystemErrorName(-errno)
}

/** errno of the last call on this thread. */
export function lastErrno(): number {
  return loaded().koffi.errno()
}

/** Makes the error for a libc call that has just failed. */
export function systemCallError(call: string, errno = lastErrno()): Error {
  const names = Object.entries<number>(loaded().koffi.os.errno)
  const name = names.find(([, value]) => value === errno)?.[0] ?? 'unknown error'
  return tsrError('ERR_TSR_SYSTEM_CALL', { call, errno, description: name })
}

/** Returns the result of a libc call that is not negative. @throws ERR_TSR_SYSTEM_CALL */
export function check(call: string, result: number): number {
  if (result < 0) throw systemCallError(call)
  return result
}

const lazies: (() => unknown)[] = []

/** Defers `make` to the first call, so that importing this package loads nothing. */
export function lazy<T>(make: () => T): () => T {
  let made: { value: T } | undefined
  const get = (): T => (made ??= { value: make() }).value
  lazies.push(get)
  return get
}

/**
 * Binds functions of a library from their C prototypes, together on the first call.
 *
 * @returns a function that throws ERR_TSR_NATIVE_UNAVAILABLE
 */
export function bindFunctions<const Prototypes extends Record<string, string>>(
  prototypes: Prototypes,
  open = (): Library => loaded().libc,
): () => { readonly [Name in keyof Prototypes]: NativeFunction<Prototypes[Name]> } {
  return lazy(() => {
    const library = open()
    const bound = Object.entries(prototypes).map(([name, text]) => [name, library.func(text)])
    return Object.fromEntries(bound) as never
  })
}

/**
 * Binds everything that this package would bind on first use. A thread that may be terminated at any
 * time must call it first: terminating a thread while koffi binds ends the whole process.
 */
export function bindAll(): void {
  if (!isAvailable().available) return
  for (const get of lazies) {
    try {
      get()
    } catch {
      // This C library lacks the function. A later call reports it.
    }
  }
}

function firstLine(error: unknown): string {
  return String(error instanceof Error ? error.message : error).split('\n', 1)[0] ?? ''
}

const calls = bindFunctions({
  open: 'int open(str, int)',
  pread: 'int64_t pread(int, size_t, size_t, int64_t)',
  write: 'int64_t write(int, size_t, size_t)',
  close: 'int close(int)',
})

const CLOSE_ON_EXEC = 0o2000000

/**
 * Opens a file that exists. Deno's node:fs has numbers of its own for open files, which libc does not
 * know.
 *
 * @param flags - of open(2); the descriptor is also closed on exec
 */
export function openNative(path: string, flags: number): number {
  return check('open', calls().open(path, flags | CLOSE_ON_EXEC))
}

/** Reads the first bytes of a file. Returns their number. */
export function readNative(fd: number, into: Uint8Array): number {
  return check('pread', calls().pread(fd, addressOf(into), into.length, 0))
}

/** Writes bytes. Returns how many were written, or -1 (see `lastErrno`). */
export function writeNative(fd: number, bytes: Uint8Array): number {
  return calls().write(fd, addressOf(bytes), bytes.length)
}

/**
 * Closes a descriptor that libc opened. In a user's worker thread, Node's functions accept only
 * descriptors that Node opened.
 */
export function closeNative(fd: number): void {
  calls().close(fd)
}

/** In Deno, the functions of node:fs take Deno's own file numbers instead of descriptors. */
const hasOwnNumbers = process.versions['deno'] !== undefined

/**
 * Returns the status of an open descriptor that may be a pipe, with bigint fields. Without bigint,
 * fstatSync() leaves the pipe's status in a buffer that Node's realpathSync() reads for the next path.
 * Later imports would then not resolve symbolic links, and would load a module again under each name.
 *
 * @throws EBADF if it is closed
 */
export function statusOf(descriptor: number): BigIntStats {
  if (hasOwnNumbers) return statSync(`/proc/self/fd/${descriptor}`, { bigint: true })
  return fstatSync(descriptor, { bigint: true })
}

type BoundFunction<Arguments extends unknown[], Result> = (...args: Arguments) => Result

/** A shared library that the dynamic linker finds by its file name. */
export interface SharedLibrary {
  readonly name: string
  /** Binds a function from its C prototype. */
  bind<Arguments extends unknown[], Result>(prototype: string): BoundFunction<Arguments, Result>
  /** The address of an exported object; undefined if it does not exist. */
  symbol(name: string): number | undefined
}

/**
 * Opens the first library of a list that exists. Plug-ins that the library loads see its symbols.
 *
 * @returns undefined if none exists
 * @throws ERR_TSR_NATIVE_UNAVAILABLE
 */
export function openSharedLibrary(names: readonly string[]): SharedLibrary | undefined {
  const { koffi } = loaded()
  for (const name of names) {
    let library: Library
    try {
      library = openLibrary(koffi, name, { global: true })
    } catch {
      continue
    }
    return {
      name,
      bind: (prototype) => library.func(prototype),
      symbol: (symbol) => {
        try {
          return Number(library.symbol(symbol))
        } catch {
          return undefined
        }
      },
    }
  }
  return undefined
}
