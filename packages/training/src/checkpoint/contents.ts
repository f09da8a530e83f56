import { crc32 } from 'node:zlib'
import type { Box } from './piece.ts'

/** Where a part of a tensor is stored. */
export interface StoredPiece {
  readonly file: string
  /** The name of the part in the file. */
  readonly key: string
  readonly box?: Box
  readonly range?: readonly [from: number, to: number]
  /** The CRC-32 of its bytes. */
  readonly crc32: number
}

export interface StoredTensor {
  readonly dtype: string
  /** The shape of the whole tensor. */
  readonly shape: readonly number[]
  readonly pieces: readonly StoredPiece[]
}

/** The contents of the `index.json` of a checkpoint. */
export interface Contents {
  /** A number that increases with each save to a folder: the newest checkpoint has the highest one. */
  readonly save: number
  readonly step: number
  /** The number of ranks that have saved it. */
  readonly ranks: number
  /** Whether it contains the state of an optimizer. */
  readonly hasOptimizer: boolean
  readonly data: unknown
  readonly seeds: Readonly<Record<string, number>>
  /** The size of each file in bytes. */
  readonly files: Readonly<Record<string, number>>
  readonly tensors: Readonly<Record<string, StoredTensor>>
}

export const INDEX = 'index.json'
const FORMAT = 'tsrun checkpoint 1'

/** The text of `index.json`: the contents with their CRC-32. */
export function encodeContents({ save, ...others }: Contents): string {
  const text = JSON.stringify({ save, ...others })
  return `{"format":"${FORMAT}","crc32":${String(crc32(text))},"contents":${text}}\n`
}

/** The number of bytes at the beginning of the text that `saveNumberIn` needs. */
export const HEAD = 128

/**
 * The number of a save, from the beginning of an `index.json`, which may be long.
 *
 * @returns undefined unless `head` is the beginning of one
 */
export function saveNumberIn(head: string): number | undefined {
  if (!head.startsWith(`{"format":"${FORMAT}",`)) return undefined
  const [, save = '0'] = /"contents":\{"save":(\d+),/.exec(head) ?? []
  return Number(save)
}

/** @throws Error that describes the problem */
export function decodeContents(text: string): Contents {
  let index: { format?: unknown; crc32?: unknown; contents?: unknown } | null
  try {
    index = JSON.parse(text) as typeof index
  } catch {
    throw new Error('it is not JSON')
  }
  if (index?.format !== FORMAT) throw new Error(`it is not of the format ${FORMAT}`)
  if (crc32(JSON.stringify(index.contents)) !== index.crc32)
    throw new Error('its checksum does not match')
  return index.contents as Contents
}
