import { decode, encode } from '@tsrun/core'
import { VALUE_LIMIT, type Store } from '@tsrun/store'

/** Most bytes that arguments, or the value of a rank, may take. */
const PARCEL_LIMIT = 256 * 1024 * 1024

export const TASK = 'tsrun/spawn/task'

export function valueOf(rank: number): string {
  return `tsrun/spawn/value/${rank}`
}

/**
 * Leaves a value of any size in the store, in pieces that it takes.
 *
 * @throws ERR_TSR_ARGUMENT, ERR_TSR_MESSAGE_TOO_LARGE
 */
export async function putParcel(store: Store, key: string, value: unknown): Promise<void> {
  const bytes = encode({ value }, PARCEL_LIMIT)
  const pieces = Math.ceil(bytes.byteLength / VALUE_LIMIT)
  for (let piece = 0; piece < pieces; piece++) {
    const begin = piece * VALUE_LIMIT
    await store.set(`${key}/${piece}`, bytes.subarray(begin, begin + VALUE_LIMIT))
  }
  await store.set(key, String(pieces))
}

/** Waits until it is there. */
export async function takeParcel(store: Store, key: string): Promise<unknown> {
  const pieces = Number(Buffer.from(await store.get(key)).toString())
  const bytes: Uint8Array[] = []
  for (let piece = 0; piece < pieces; piece++) bytes.push(await store.get(`${key}/${piece}`))
  return (decode(Buffer.concat(bytes), PARCEL_LIMIT) as { value: unknown }).value
}
