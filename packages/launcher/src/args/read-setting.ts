import { tsrError, type TsrError } from '@tsrun/core'
import type { FlagName } from './flags.ts'
import type { Settings } from './settings.ts'

/** An integer of these limits. @throws ERR_TSR_USAGE */
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

/** Whether a switch is on: true or false, yes or no, on or off, 1 or 0. */
export function readSwitch(settings: Settings, name: FlagName): boolean {
  return read(settings, name, 'true or false', (text) => {
    if (/^(true|1|yes|on)$/i.test(text)) return true
    return /^(false|0|no|off)$/i.test(text) ? false : undefined
  })
}

/**
 * The value of a setting, or that of an empty text if there is none.
 *
 * @param expected - what the value has to be, for the error
 * @param parse - returns undefined for a text that it does not accept
 * @throws ERR_TSR_USAGE
 */
export function read<T>(
  settings: Settings,
  name: FlagName,
  expected: string,
  parse: (text: string) => T | undefined,
): T {
  const setting = settings[name] ?? { value: '', source: `--${name}` }
  const value = parse(setting.value.trim())
  if (value !== undefined) return value
  const { source } = setting
  throw usageError(`${source} is ${JSON.stringify(setting.value)}; expected ${expected}`)
}

/** An integer of these limits; undefined for any other text. */
export function toInteger(text: string, lowest: number, highest: number): number | undefined {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  return value >= lowest && value <= highest ? value : undefined
}

/** `10`, `0.5`, `30s`: seconds up to a day; undefined for any other text. */
export function readSeconds(text: string): number | undefined {
  const value = /^(\d+|\d*\.\d+)s?$/.test(text) ? parseFloat(text) : NaN
  return value <= 86_400 ? value : undefined
}

/** @returns ERR_TSR_USAGE */
export function usageError(problem: string, cause?: unknown): TsrError {
  return tsrError('ERR_TSR_USAGE', { problem }, { cause })
}
