import { createRequire } from 'node:module'
import { tsrError } from '@tsrun/core/errors'
import type * as Koffi from 'koffi'

type KoffiModule = typeof Koffi

/** A function of libc; pointers are passed as plain addresses (numbers), see `addressOf`. */
export type NativeFunction<Arguments extends unknown[], Result> = (...args: Arguments) => Result

interface Loaded {
  readonly koffi: KoffiModule
  readonly libc: ReturnType<KoffiModule['load']>
}

let outcome: Loaded | { readonly reason: string } | undefined

function load(): Loaded | { readonly reason: string } {
  if (process.env['TSRUN_NATIVE'] === 'off') return { reason: 'TSRUN_NATIVE=off' }
  if (process.platform !== 'linux') return { reason: `platform ${process.platform}, only linux` }
  let koffi: KoffiModule
  try {
    koffi = createRequire(import.meta.url)('koffi') as KoffiModule
  } catch (error) {
    return { reason: `the package koffi cannot be loaded: ${firstLine(error)}` }
  }
  for (const name of [
    'libc.so.6',
    `libc.musl-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}.so.1`,
  ]) {
    try {
      return { koffi, libc: koffi.load(name) }
    } catch {
      // try the next C library
    }
  }
  return { reason: 'no C library found (tried glibc and musl)' }
}

function loaded(): Loaded {
  outcome ??= load()
  if ('reason' in outcome) throw tsrError('ERR_TSR_NATIVE_UNAVAILABLE', { reason: outcome.reason })
  return outcome
}

/** Whether the bindings work here, and if not, why. */
export function isAvailable(): { available: true } | { available: false; reason: string } {
  outcome ??= load()
  return 'reason' in outcome ? { available: false, reason: outcome.reason } : { available: true }
}

/**
 * Binds a libc function from its C prototype.
 *
 * @throws ERR_TSR_NATIVE_UNAVAILABLE
 */
export function bindFunction<Arguments extends unknown[], Result>(
  prototype: string,
): NativeFunction<Arguments, Result> {
  return loaded().libc.func(prototype)
}

/** Loads another library with its symbols visible to all; undefined when it cannot be loaded. */
export function loadLibrary(name: string): ReturnType<KoffiModule['load']> | undefined {
  const { koffi } = loaded()
  try {
    return koffi.load(name, { global: true })
  } catch {
    return undefined
  }
}

/** Address in this process of the first byte of `view`. The memory must outlive its use. */
export function addressOf(view: ArrayBufferView): number {
  return Number(loaded().koffi.address(view))
}

/** errno of the last call on this thread. */
export function lastErrno(): number {
  return loaded().koffi.errno()
}

/** The error for a libc call that failed just now. */
export function systemCallError(call: string, errno = lastErrno()): Error {
  const names = Object.entries<number>(loaded().koffi.os.errno)
  const name = names.find(([, value]) => value === errno)?.[0] ?? 'unknown error'
  return tsrError('ERR_TSR_SYSTEM_CALL', { call, errno, description: name })
}

const lazies: (() => unknown)[] = []

/** Runs `make` at the first call only, so that importing this package loads nothing. */
export function lazy<T>(make: () => T): () => T {
  let made: { value: T } | undefined
  const get = (): T => (made ??= { value: make() }).value
  lazies.push(get)
  return get
}

/**
 * Binds all that this package binds at the first call. A thread that others may end at any moment
 * does so first: koffi ends the whole process where its thread is ended while it binds.
 */
export function bindAll(): void {
  if (!isAvailable().available) return
  for (const get of lazies) {
    try {
      get()
    } catch {
      // this C library has it not: told where it is called
    }
  }
}

function firstLine(error: unknown): string {
  return String(error instanceof Error ? error.message : error).split('\n', 1)[0] ?? ''
}
