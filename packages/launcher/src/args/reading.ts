import { tsrError } from '@tsrun/core'
import type { FlagName } from './flags.ts'
import type { Setting, Settings } from './settings.ts'

export function readInteger(
  settings: Settings,
  name: FlagName,
  lowest: number,
  highest: number,
): number {
  return read(settings, name, `an integer from ${lowest} to ${highest}`, (text) =>
    toInteger(text, lowest, highest),
  )
}

export function readSwitch(settings: Settings, name: FlagName): boolean {
  return read(settings, name, 'true or false', (text) => {
    if (/^(true|1|yes|on)$/i.test(text)) return true
    return /^(false|0|no|off)$/i.test(text) ? false : undefined
  })
}

/** Reads the setting with `parse`, which returns undefined for what it does not accept. */
export function read<T>(
  settings: Settings,
  name: FlagName,
  expected: string,
  parse: (text: string) => T | undefined,
): T {
  const setting = settings[name] ?? { value: '', source: `--${name}` }
  const value = parse(setting.value.trim())
  if (value === undefined) throw wrong(setting, expected)
  return value
}

export function toInteger(text: string, lowest: number, highest: number): number | undefined {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  return value >= lowest && value <= highest ? value : undefined
}

export function readSeconds(text: string): number | undefined {
  const value = /^(\d+|\d*\.\d+)s?$/.test(text) ? parseFloat(text) : NaN
  return value <= 86_400 ? value : undefined
}

export function wrong({ source, value }: Setting, expected: string): Error {
  return usage(`${source} is ${JSON.stringify(value)}; expected ${expected}`)
}

export function usage(problem: string): Error {
  return tsrError('ERR_TSR_USAGE', { problem })
}
