import { crc32 } from 'node:zlib'
import type { Box } from './piece.ts'

/** Where a part of a tensor is. */
export interface StoredPiece {
  readonly file: string
  /** Its name in the file. */
  readonly key: string
  readonly box?: Box
  readonly range?: readonly [from: number, to: number]
  /** CRC-32 of its bytes. */
  readonly crc32: number
}

export interface StoredTensor {
  readonly dtype: string
  /** Of the whole. */
  readonly shape: readonly number[]
  readonly pieces: readonly StoredPiece[]
}

/** What a checkpoint's `index.json` says. */
export interface Contents {
  /** How many saves to this folder came before it, at least: the newest has the highest number. */
  readonly save: number
  readonly step: number
  /** Ranks that have saved it. */
  readonly ranks: number
  /** Whether the state of an optimizer is in it. */
  readonly hasOptimizer: boolean
  readonly data: unknown
  readonly seeds: Readonly<Record<string, number>>
  /** Bytes of each file. */
  readonly files: Readonly<Record<string, number>>
  readonly tensors: Readonly<Record<string, StoredTensor>>
}

export const INDEX = 'index.json'
const FORMAT = 'tsrun checkpoint 1'

/** The text of `index.json`: the contents and their CRC-32. */
export function encodeContents({ save, ...others }: Contents): string {
  const text = JSON.stringify({ save, ...others })
  return `{"format":"${FORMAT}","crc32":${String(crc32(text))},"contents":${text}}\n`
}

/** Bytes of the text in which `saveNumberIn` finds what it looks for. */
export const HEAD = 128

/**
 * The number of a save, from the beginning of `index.json`: the rest may be long.
 *
 * @returns undefined where it is not the beginning of one
 */
export function saveNumberIn(head: string): number | undefined {
  if (!head.startsWith(`{"format":"${FORMAT}",`)) return undefined
  const [, save = '0'] = /"contents":\{"save":(\d+),/.exec(head) ?? []
  return Number(save)
}

/** @throws Error that says what is wrong with it */
export function decodeContents(text: string): Contents {
  let index: { format?: unknown; crc32?: unknown; contents?: unknown } | null
  try {
    index = JSON.parse(text) as typeof index
  } catch {
    throw new Error('it is not JSON')
  }
  if (index?.format !== FORMAT) throw new Error(`it is not of the format ${FORMAT}`)
  if (crc32(JSON.stringify(index.contents)) !== index.crc32) throw new Error('it was changed')
  return index.contents as Contents
}
