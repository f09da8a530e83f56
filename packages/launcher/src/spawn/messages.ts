import { decode, encode } from '@tsrun/core'
import { VALUE_LIMIT, type Store } from '@tsrun/store'

export type Task = FunctionTask | ModuleTask

export interface FunctionTask {
  readonly kind: 'function'
  /** A JavaScript expression. */
  readonly source: string
  /** An absolute path, from which the function's imports are resolved. Stack traces show it. */
  readonly path: string
}

interface ModuleTask {
  readonly kind: 'module'
  readonly url: string
  readonly entry: string
}

/** Maximum bytes of the arguments, or of a rank's return value. */
const LARGEST = 256 * 1024 * 1024

export const TASK = 'tsrun/spawn/task'

export function valueOf(rank: number): string {
  return `tsrun/spawn/value/${rank}`
}

/** Puts a value of any size into the store, in pieces that the store accepts. */
export async function putValue(store: Store, key: string, value: unknown): Promise<void> {
  const bytes = encode({ value }, LARGEST)
  const pieces = Math.ceil(bytes.byteLength / VALUE_LIMIT)
  for (let piece = 0; piece < pieces; piece++) {
    const begin = piece * VALUE_LIMIT
    await store.set(`${key}/${piece}`, bytes.subarray(begin, begin + VALUE_LIMIT))
  }
  await store.set(key, String(pieces))
}

/** Waits for a value that `putValue` stores, and returns it. */
export async function takeValue(store: Store, key: string): Promise<unknown> {
  const pieces = Number(Buffer.from(await store.get(key)).toString())
  const bytes: Uint8Array[] = []
  for (let piece = 0; piece < pieces; piece++) bytes.push(await store.get(`${key}/${piece}`))
  return (decode(Buffer.concat(bytes), LARGEST) as { value: unknown }).value
}
