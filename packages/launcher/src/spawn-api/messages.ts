import { decode, encode } from '@tsrun/core'
import { VALUE_LIMIT, type Store } from '@tsrun/store'

/** What the ranks are told to run. */
export type Task = FunctionTask | ModuleTask

export interface FunctionTask {
  readonly kind: 'function'
  /** An expression. */
  readonly source: string
  /** An absolute path. The function's imports are resolved from there, and stacks show it. */
  readonly path: string
}

export interface ModuleTask {
  readonly kind: 'module'
  readonly url: string
  readonly entry: string
}

/** The largest number of bytes of the arguments, or of the value of a rank. */
const LARGEST = 256 * 1024 * 1024

/** The key of the task and its arguments. */
export const TASK = 'tsrun/spawn/task'

/** The key of the value that a rank returns. */
export function valueOf(rank: number): string {
  return `tsrun/spawn/value/${rank}`
}

/**
 * Puts a value of any size into the store, in pieces of the size that the store accepts.
 *
 * @throws ERR_TSR_ARGUMENT, ERR_TSR_MESSAGE_TOO_LARGE
 */
export async function putValue(store: Store, key: string, value: unknown): Promise<void> {
  const bytes = encode({ value }, LARGEST)
  const pieces = Math.ceil(bytes.byteLength / VALUE_LIMIT)
  for (let piece = 0; piece < pieces; piece++) {
    const begin = piece * VALUE_LIMIT
    await store.set(`${key}/${piece}`, bytes.subarray(begin, begin + VALUE_LIMIT))
  }
  await store.set(key, String(pieces))
}

/** Waits for a value that `putValue` has put there. */
export async function takeValue(store: Store, key: string): Promise<unknown> {
  const pieces = Number(Buffer.from(await store.get(key)).toString())
  const bytes: Uint8Array[] = []
  for (let piece = 0; piece < pieces; piece++) bytes.push(await store.get(`${key}/${piece}`))
  return (decode(Buffer.concat(bytes), LARGEST) as { value: unknown }).value
}
