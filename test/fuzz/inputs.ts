import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encode } from '@tsrun/core'

export const folder = mkdtempSync(join(tmpdir(), 'tsrun-fuzz-'))
process.once('exit', () => {
  rmSync(folder, { recursive: true, force: true })
})

export function fileOf(name: string, bytes: Uint8Array): string {
  const path = join(folder, name)
  writeFileSync(path, bytes)
  return path
}

export const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString()
export const json = (value: unknown): string => JSON.stringify(value)

/** A value of msgpack, from that of a JSON; `$bytes` stands for bytes. */
export function packed(value: unknown): Uint8Array {
  const convert = (one: unknown): unknown => {
    if (Array.isArray(one)) return one.map(convert)
    if (typeof one !== 'object' || one === null) return one
    if ('$bytes' in one && typeof one.$bytes === 'string') return Buffer.from(one.$bytes)
    return Object.fromEntries(Object.entries(one).map(([name, field]) => [name, convert(field)]))
  }
  return encode(convert(value))
}

export const parsed = (input: Uint8Array): unknown => {
  try {
    return JSON.parse(textOf(input))
  } catch {
    return undefined
  }
}
