import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { types } from 'node:util'
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

/** Hands on a value that consists of plain data. @throws TypeError for a function, or an odd prototype */
export function plainly<T>(value: T, seen = new Set<unknown>()): T {
  if (typeof value === 'function') throw new TypeError(`a function: ${value.name}`)
  if (typeof value !== 'object' || value === null || seen.has(value)) return value
  seen.add(value)
  if (ArrayBuffer.isView(value) || types.isDate(value)) return value
  if (types.isMap(value) || types.isSet(value)) {
    for (const part of [...value.keys(), ...value.values()]) plainly(part, seen)
    return value
  }
  const isPlain = Object.getPrototypeOf(value) === Object.prototype || types.isAnyArrayBuffer(value)
  if (!isPlain && !Array.isArray(value) && !types.isNativeError(value)) {
    throw new TypeError('an object with a prototype of its own')
  }
  for (const key of Reflect.ownKeys(value)) plainly(value[key as keyof typeof value], seen)
  return value
}
