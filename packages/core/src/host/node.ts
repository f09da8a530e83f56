import { setMaxListeners } from 'node:events'
import { writeSync } from 'node:fs'
import { availableParallelism, hostname } from 'node:os'
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { types } from 'node:util'
import { makeOwnFolder, replaceFile } from './files.ts'

const STDERR = 2
/** Milliseconds until the next attempt to write to a full pipe. */
const RETRY_AFTER = 10

/** In Bun and Deno, `process.hrtime` starts at 0 in each process, so use a clock that processes share. */
const hasOwnClock = ['bun', 'deno'].some((name) => name in process.versions)

/** Read `process` once, because it is a getter. */
const { hrtime } = process

/**
 * Services of the host that core, store, distributed and training use. Bundlers replace this module by
 * `browser.ts`, through `imports` in package.json.
 */
export const host = {
  get env(): Readonly<Record<string, string | undefined>> {
    return process.env
  },
  get output(): { readonly columns?: number } {
    return process.stdout
  },
  processId: process.pid,
  name: hostname,
  cores: availableParallelism,
  types: types as HostTypes,
  /** Milliseconds on the monotonic clock. */
  now(): number {
    if (hasOwnClock) return performance.timeOrigin + performance.now()
    const [seconds, nanoseconds] = hrtime()
    return seconds * 1e3 + nanoseconds / 1e6
  },
  /** CPU time of all threads in milliseconds; undefined if the host does not measure it. */
  cpuTime(): number | undefined {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e3
  },
  /** Resolves after one turn of the event loop. */
  nextTurn: (): Promise<void> => new Promise((resolve) => setImmediate(resolve)),
  /** Starts a timer that does not keep the process alive. */
  background: (run: () => void, milliseconds: number): NodeJS.Timeout =>
    setTimeout(run, milliseconds).unref(),
  /** Makes a background timer keep the process alive again. */
  foreground(timer: NodeJS.Timeout): void {
    timer.ref()
  },
  /** Disables the listener limit of a signal. */
  allowListeners(signal: AbortSignal): void {
    setMaxListeners(0, signal)
  },
  pathOf: (url: string | URL): string => fileURLToPath(url),
  relativePath: (path: string): string => relative(process.cwd(), path),
  isBuffer: (value: object): boolean => Buffer.isBuffer(value),
  /** Returns a Buffer, which the codec sends unchanged. Text becomes UTF-8; other values are not copied. */
  bytesOf(value: string | ArrayBufferView | ArrayBufferLike): Uint8Array {
    if (typeof value === 'string') return Buffer.from(value)
    return ArrayBuffer.isView(value)
      ? Buffer.from(value.buffer, value.byteOffset, value.byteLength)
      : Buffer.from(value)
  },
  /** Writes a line of the log before it returns. Drops the line if the reader of the log has gone. */
  writeLog(_severity: Severity, line: object): void {
    const bytes = Buffer.from(`${JSON.stringify(line)}\n`)
    for (let written = 0; written < bytes.length;) {
      try {
        written += writeSync(STDERR, bytes, written)
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return
        // The pipe is full and non-blocking.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_AFTER)
      }
    }
  },
  /** Creates or replaces a file that only this user can read, and makes its folder. Returns its path. */
  writeOwnFile(folder: string, name: string, text: string): string {
    const path = `${folder}/${name}`
    makeOwnFolder(folder)
    replaceFile(path, text)
    return path
  },
}

export type Host = typeof host
type Severity = 'debug' | 'info' | 'warn' | 'error'
type HostTypes = Pick<
  typeof types,
  | 'isAnyArrayBuffer'
  | 'isDate'
  | 'isFloat32Array'
  | 'isMap'
  | 'isNativeError'
  | 'isPromise'
  | 'isRegExp'
  | 'isSet'
  | 'isUint8Array'
>
