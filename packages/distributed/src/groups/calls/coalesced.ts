import { tsrError } from '@tsrun/core'
import type { Arena } from '../../arena/arena.ts'
import { dtypes, type AnyTypedArray, type DType } from '../../dtype.ts'
import { digestOf } from '../../operation.ts'
import type { ReduceOptions } from '../../process-group.ts'
import { checkAlgorithm, checkBuffer } from './arguments.ts'
import { checkReduction } from './reductions.ts'
import type { Call } from './operations.ts'

/**
 * Packs the buffers into one block of the arena; the call unpacks them again.
 *
 * @throws ERR_TSR_BUFFER, ERR_TSR_ARENA_EXHAUSTED
 */
export function coalescedCall(
  arena: Arena,
  buffers: readonly AnyTypedArray[],
  options?: ReduceOptions,
): Call {
  const name = 'allReduceCoalesced'
  const dtype = commonDtype(name, buffers, options)
  const reduction = checkReduction(name, dtype, options)
  const algorithm = checkAlgorithm(name, options)
  const lengths = buffers.map(({ length }) => length)
  const count = lengths.reduce((a, b) => a + b, 0)
  const { bytes } = arena.heap
  const at = arena.allocBytes(count * dtypes[dtype].bytes)
  let end = at
  const packed = buffers.map((buffer) => {
    const place = bytes.subarray(end, end + buffer.byteLength)
    place.set(bytesOf(buffer))
    end += buffer.byteLength
    return { buffer, place }
  })
  const whole = new dtypes[dtype].array(bytes.buffer, at, count)
  return {
    name,
    dtype,
    count,
    input: whole,
    output: whole,
    peer: digestOf(lengths),
    reduction,
    algorithm,
    options,
    onDone: () => {
      for (const { buffer, place } of packed) {
        if (buffer.byteLength !== place.length) {
          const problem = 'a buffer was detached while the operation was under way'
          throw tsrError('ERR_TSR_BUFFER', { operation: name, problem })
        }
        bytesOf(buffer).set(place)
      }
    },
    onEnd: () => {
      arena.releaseBytes(at)
    },
  }
}

function commonDtype(
  operation: string,
  buffers: readonly AnyTypedArray[],
  options: ReduceOptions | undefined,
): DType {
  const refuse = (problem: string): Error => tsrError('ERR_TSR_BUFFER', { operation, problem })
  if (!Array.isArray(buffers)) throw refuse('buffers is no list')
  const [first, ...rest] = buffers.map((buffer, i) =>
    checkBuffer(operation, `buffers[${i}]`, buffer, options),
  )
  if (first === undefined) throw refuse('the list of buffers is empty')
  const odd = rest.findIndex((dtype) => dtype !== first)
  if (odd < 0) return first
  throw refuse(`buffers[0] is ${first}, but buffers[${odd + 1}] is ${rest[odd]}`)
}

function bytesOf({ buffer, byteOffset, byteLength }: AnyTypedArray): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}
