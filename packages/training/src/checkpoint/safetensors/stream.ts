import { on } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { HeldValues } from '../../backend/held-values.ts'
import { packageFolder } from '../../package-folder.ts'
import { check, type Checks } from './checks.ts'
import { bytesOf, layoutOf, toValues, type TensorValues } from './dtypes.ts'

/** The bytes that are copied at once, in less than a millisecond. */
const CHUNK = 1024 * 1024
/** The number of chunks that are written and checked at one time. */
const UNDER_WAY = 4
/** The largest size in bytes of a tensor that is checked in this thread. */
const SMALL = 64 * 1024

/**
 * Reads tensors chunk by chunk into memory that is used again, checks them in another thread, and
 * releases them. Other work of this process can run between chunks.
 *
 * @param write - writes the bytes of a tensor to their place among the bytes of all tensors
 * @returns the checks of each tensor
 */
export async function streamTensors(
  tensors: readonly (TensorValues | HeldValues)[],
  write: (bytes: Uint8Array, place: number) => void | Promise<void>,
  signal?: AbortSignal,
): Promise<Checks[]> {
  let thread: Worker | undefined
  let replies: AsyncIterator<[Checks]> | undefined
  const checkBeside = async (values: TensorValues, isFirst: boolean) => {
    thread ??= new Worker(new URL('dist/check-thread.js', packageFolder), { execArgv: [] })
    replies ??= on(thread, 'message') as AsyncIterator<[Checks]>
    thread.postMessage({ values, isFirst })
    const { value } = (await replies.next()) as IteratorYieldResult<[Checks]>
    return value[0]
  }
  const free = Array.from({ length: UNDER_WAY }, () =>
    Promise.resolve(new SharedArrayBuffer(CHUNK)),
  )
  const results: (Checks | Promise<Checks>)[] = []
  let place = 0
  try {
    for (const [i, values] of tensors.entries()) {
      const { dtype, bytes } = layoutOf(values)
      const most = CHUNK / bytesOf(dtype)
      results.push({ crc32: 0 })
      for (let at = 0; at < values.length; at += most) {
        signal?.throwIfAborted()
        const memory = await free.shift()!
        const chunk = toValues(dtype, memory, Math.min(most, values.length - at))
        if ('read' in values) await values.read(chunk as Float32Array, at)
        else chunk.set(values.subarray(at, at + most) as never)
        const checks = bytes <= SMALL ? check(chunk) : checkBeside(chunk, at === 0)
        results[i] = checks
        const written = write(new Uint8Array(memory, 0, chunk.byteLength), place)
        place += chunk.byteLength
        const freed = Promise.all([checks, written]).then(() => memory)
        // Ignore the error here: awaiting the memory throws it.
        freed.catch(() => undefined)
        free.push(freed)
      }
      if ('read' in values) values.release()
    }
    await Promise.all(free)
    return await Promise.all(results.map(async (checks) => await checks))
  } finally {
    await thread?.terminate()
  }
}
