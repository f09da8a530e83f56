import { crc32 } from 'node:zlib'
import { count, integer, isObject, record } from '@tsrun/core'
import { sizeOf } from '../tfjs/host-arrays.ts'
import type { Box } from './piece.ts'
import { isCounts, isDType, shorten, type SafetensorsDType } from './safetensors/dtypes.ts'

/** A part of a tensor that a checkpoint contains. */
export interface StoredPiece {
  readonly file: string
  /** The name of the piece in the file. */
  readonly key: string
  readonly box?: Box
  readonly range?: readonly [from: number, to: number]
  /** The CRC-32 of the bytes of the piece. */
  readonly crc32: number
}

export interface StoredTensor {
  readonly dtype: SafetensorsDType
  /** The shape of the whole tensor. */
  readonly shape: readonly number[]
  readonly pieces: readonly StoredPiece[]
}

/** The contents of the `index.json` of a checkpoint. */
export interface Contents {
  /** A number that increases with each save to a folder. The newest checkpoint has the highest number. */
  readonly save: number
  readonly step: number
  /** The number of ranks that saved the checkpoint. */
  readonly ranks: number
  /** Whether the checkpoint contains the state of an optimizer. */
  readonly hasOptimizer: boolean
  readonly data: unknown
  readonly seeds: Readonly<Record<string, number>>
  /** The size of each file in bytes. */
  readonly files: Readonly<Record<string, number>>
  readonly tensors: Readonly<Record<string, StoredTensor>>
}

export const INDEX = 'index.json'
const FORMAT = 'tsrun checkpoint 1'

/** Returns the text of `index.json`: the contents, with a CRC-32 of them. */
export function encodeContents({ save, ...others }: Contents): string {
  const text = JSON.stringify({ save, ...others })
  return `{"format":"${FORMAT}","crc32":${crc32(text)},"contents":${text}}\n`
}

/** The number of bytes from the start of an `index.json` that `saveNumberIn` needs. */
export const HEAD = 128

/**
 * Returns the number of a save from the first bytes of an `index.json`, because the whole file may
 * be long.
 *
 * @returns undefined unless `head` is the beginning of an `index.json`
 */
export function saveNumberIn(head: string): number | undefined {
  if (!head.startsWith(`{"format":"${FORMAT}",`)) return undefined
  const [, save = '0'] = /"contents":\{"save":(\d+),/.exec(head) ?? []
  return Number(save)
}

/**
 * Parses and checks an `index.json` before any file that it lists is opened. The checks are strict,
 * because a checksum does not protect against forgery.
 *
 * @throws Error that describes the problem
 */
export function decodeContents(text: string): Contents {
  let index: unknown
  try {
    index = JSON.parse(text)
  } catch {
    throw new Error('it is not JSON')
  }
  if (!isObject(index) || index['format'] !== FORMAT) {
    throw new Error(`it is not of the format ${FORMAT}`)
  }
  const { contents, crc32: checksum } = index
  if (!isObject(contents) || crc32(JSON.stringify(contents)) !== checksum) {
    throw new Error('its checksum does not match')
  }
  checkContents(contents)
  return contents
}

const { is: isCount } = count()
const { is: areIntegers } = record(integer)

function checkContents(
  contents: Readonly<Record<string, unknown>>,
): asserts contents is Contents & typeof contents {
  const { save, step, ranks, hasOptimizer, seeds, files, tensors } = contents
  check(isCount(save) && isCount(step) && isCount(ranks), 'its numbers are not counts')
  check(typeof hasOptimizer === 'boolean', 'it does not say whether it has an optimizer')
  check(areIntegers(seeds), 'it has no seeds')
  check(isObject(files), 'it lists no files')
  for (const [name, bytes] of Object.entries(files)) {
    check(isName(name), `${shorten(name)} is not the name of a file in its folder`)
    check(isCount(bytes), `${shorten(name)} has no size`)
  }
  check(isObject(tensors), 'it lists no tensors')
  for (const [name, tensor] of Object.entries(tensors)) checkTensor(shorten(name), tensor, files)
}

function checkTensor(name: string, tensor: unknown, files: object): void {
  check(isObject(tensor), `${name} is not an object`)
  const { dtype, shape, pieces } = tensor
  check(isDType(dtype), `${name} has an unknown dtype`)
  check(isCounts(shape) && isCount(sizeOf(shape)), `${name} has no shape`)
  check(Array.isArray(pieces), `${name} has no pieces`)
  for (const piece of pieces) {
    check(isObject(piece), `a piece of ${name} is not an object`)
    const { file, key, crc32: checksum, box, range } = piece
    check(typeof file === 'string' && Object.hasOwn(files, file), `a piece of ${name} has no file`)
    check(typeof key === 'string' && isCount(checksum), `a piece of ${name} has no checksum`)
    check(box === undefined || isBox(box, shape), `a piece of ${name} is outside of the tensor`)
    const size = sizeOf(box === undefined ? shape : (box as Box).extent)
    check(range === undefined || isRange(range, size), `a piece of ${name} is outside of its box`)
  }
}

function isBox(box: unknown, shape: readonly number[]): boolean {
  if (!isObject(box)) return false
  const { offset, extent } = box
  return (
    isCounts(offset) &&
    isCounts(extent) &&
    offset.length === shape.length &&
    extent.length === shape.length &&
    shape.every((length, axis) => offset[axis]! + extent[axis]! <= length)
  )
}

function isRange(range: unknown, size: number): boolean {
  return isCounts(range) && range.length === 2 && range[0]! <= range[1]! && range[1]! <= size
}

/** Whether `name` is a valid name for a file directly in the folder of a checkpoint. */
export function isName(name: unknown): name is string {
  return typeof name === 'string' && /^[\w.-]+$/.test(name) && !/^\.+$/.test(name)
}

function check(holds: boolean, problem: string): asserts holds {
  if (!holds) throw new Error(problem)
}
