import { crc32 } from 'node:zlib'
import {
  anything,
  count,
  flag,
  isObject,
  list,
  object,
  record,
  text,
  where,
  type ObjectOf,
  type Of,
} from '@tsrun/core'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { isDType, shorten, type SafetensorsDType } from './safetensors/dtypes.ts'

const length = count()
const lengths = list(length)

const storedPiece = object({
  file: text,
  /** The name of the piece in the file. */
  key: text,
  box: object({ offset: lengths, extent: lengths }).optional(),
  range: where<readonly [from: number, to: number]>(
    (value) => lengths.is(value) && value.length === 2,
    'two indices',
  ).optional(),
  /** The CRC-32 of the bytes of the piece. */
  crc32: count(),
})

const storedTensor = object({
  dtype: where<SafetensorsDType>(isDType, 'a dtype'),
  /** The shape of the whole tensor. */
  shape: where<readonly number[]>(
    (shape) => lengths.is(shape) && length.is(sizeOf(shape)),
    'a shape',
  ),
  pieces: list(storedPiece),
})

const fields = {
  /** A number that increases with each save to a folder. The newest checkpoint has the highest number. */
  save: count(),
  step: count(),
  /** The number of ranks that saved the checkpoint. */
  ranks: count(),
  /** Whether the checkpoint contains the state of an optimizer. */
  hasOptimizer: flag,
  data: anything(),
  /** The size of each file in bytes. */
  files: record(count()),
  tensors: record(storedTensor),
}

/** A part of a tensor that a checkpoint contains. */
export type StoredPiece = Of<typeof storedPiece>
export type StoredTensor = Of<typeof storedTensor>
/** The contents of the `index.json` of a checkpoint. */
export type Contents = ObjectOf<typeof fields>

export const INDEX = 'index.json'
const FORMAT = 'tsrun checkpoint 1'

/** Returns the text of `index.json`: the contents and their CRC-32. */
export function encodeContents({ save, ...others }: Contents): string {
  const text = JSON.stringify({ save, ...others })
  return `{"format":"${FORMAT}","crc32":${crc32(text)},"contents":${text}}\n`
}

/** The number of bytes from the start of an `index.json` that `saveNumberIn` needs. */
export const HEAD = 128

/** Returns the number of a save from the first bytes of an `index.json`; undefined for another file. */
export function saveNumberIn(head: string): number | undefined {
  if (!head.startsWith(`{"format":"${FORMAT}",`)) return undefined
  const [, save = '0'] = /"contents":\{"save":(\d+),/.exec(head) ?? []
  return Number(save)
}

/**
 * Parses and checks an `index.json` before any file that it lists is opened. The checks are strict,
 * because a checksum does not protect against forgery.
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
  const { tensors: stored } = contents
  for (const [name, tensor] of isObject(stored) ? Object.entries(stored) : []) {
    check(storedTensor.is(tensor), `the dtype, the shape or a piece of ${shorten(name)} is wrong`)
  }
  for (const [field, { is }] of Object.entries(fields)) {
    check(is(contents[field]), `its field ${field} is missing or has a wrong value`)
  }
  const checked = contents as unknown as Contents
  const { files, tensors } = checked
  for (const name of Object.keys(files)) {
    check(isName(name), `${shorten(name)} is not the name of a file in its folder`)
  }
  for (const [name, { shape, pieces }] of Object.entries(tensors)) {
    for (const piece of pieces) checkPiece(`a piece of ${shorten(name)}`, piece, shape, files)
  }
  return checked
}

function checkPiece(
  name: string,
  { file, box, range }: StoredPiece,
  shape: readonly number[],
  files: object,
) {
  check(Object.hasOwn(files, file), `${name} has no file`)
  const { offset, extent } = box ?? { offset: shape.map(() => 0), extent: shape }
  const isInside =
    offset.length === shape.length &&
    extent.length === shape.length &&
    shape.every((length, axis) => offset[axis]! + extent[axis]! <= length)
  check(isInside, `${name} is outside of the tensor`)
  const [from, to] = range ?? [0, 0]
  check(from <= to && to <= sizeOf(extent), `${name} is outside of its box`)
}

/** Whether `name` is a valid name for a file directly in the folder of a checkpoint. */
export function isName(name: unknown): name is string {
  return typeof name === 'string' && /^[\w.-]+$/.test(name) && !/^\.+$/.test(name)
}

function check(holds: boolean, problem: string): asserts holds {
  if (!holds) throw new Error(problem)
}
