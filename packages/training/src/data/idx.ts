import { readFileSync } from 'node:fs'
import { tsrError } from '@tsrun/core'
import { sizeOf } from '../tfjs/host-arrays.ts'

/** An array of bytes as the IDX format keeps it. */
export interface IdxArray {
  readonly shape: readonly number[]
  readonly bytes: Uint8Array
}

/**
 * Reads an IDX file of unsigned bytes (yann.lecun.com/exdb/mnist): two zero bytes, the type 8, the
 * number of dimensions, their sizes as big-endian 32-bit integers, then the values.
 *
 * @throws ERR_TSR_DATASET when the file is missing, of another format or cut short
 */
export function readIdx(path: string, dimensions: number): IdxArray {
  const refuse = (problem: string, cause?: unknown) =>
    tsrError('ERR_TSR_DATASET', { path, problem }, { cause })
  let file: Buffer
  try {
    file = readFileSync(path)
  } catch (error) {
    throw refuse((error as Error).message, error)
  }
  const header = 4 + 4 * dimensions
  if (file.length < header || file.readUInt32BE(0) !== 0x0800 + dimensions) {
    throw refuse(`it is no IDX file of bytes with ${String(dimensions)} dimensions`)
  }
  const shape = Array.from({ length: dimensions }, (_, axis) => file.readUInt32BE(4 + 4 * axis))
  const size = sizeOf(shape)
  if (file.length !== header + size) {
    throw refuse(`it has ${String(file.length - header)} values instead of ${String(size)}`)
  }
  return { shape, bytes: file.subarray(header) }
}
