import { tsrError } from '@tsrun/core'

/** How much of what happens is recorded and told. */
export interface DiagnosisSettings {
  /** Where dumps of the flight recorder go; undefined: they are written on request only. */
  readonly flightDirectory: string | undefined
  /** Operations that the flight recorder keeps. */
  readonly flightEntries: number
  /** Milliseconds after which a waiting operation is warned about; Infinity: never. */
  readonly stallWarning: number
  /** Records and compares where operations are called. */
  readonly detail: boolean
  readonly runId: string
  readonly restartCount: number
}

/** For worlds within one thread: nothing is written. */
export const quietDiagnosis: DiagnosisSettings = {
  flightDirectory: undefined,
  flightEntries: 64,
  stallWarning: Infinity,
  detail: false,
  runId: 'none',
  restartCount: 0,
}

const DEFAULT_ENTRIES = 2048
const DEFAULT_STALL = 30
const MOST_ENTRIES = 1_000_000

export interface DiagnosisOptions {
  /**
   * Milliseconds after which a waiting operation is warned about, Infinity: never; default:
   * TSRUN_STALL_WARNING (in seconds, 0: never), or 30 seconds.
   */
  readonly stallWarning?: number
  /**
   * `detail` records and compares where operations are called, which costs their stacks and a
   * message to each rank; default: TSRUN_DEBUG, or `off`.
   */
  readonly debug?: 'off' | 'detail'
}

/**
 * Completes options, which have been checked, from the environment.
 *
 * @throws ERR_TSR_ENVIRONMENT
 */
export function readDiagnosis(
  options: { readonly [Name in keyof DiagnosisOptions]: DiagnosisOptions[Name] | undefined },
  env: NodeJS.ProcessEnv,
): DiagnosisSettings {
  const { TSRUN_FLIGHT_DIR: directory, TSRUN_FLIGHT_ENTRIES: entries } = env
  return {
    flightDirectory: directory === '' ? undefined : directory,
    flightEntries: readNumber('TSRUN_FLIGHT_ENTRIES', entries, DEFAULT_ENTRIES, isCount),
    stallWarning: readPatience(options.stallWarning, env['TSRUN_STALL_WARNING']),
    detail: readDebug(options.debug, env['TSRUN_DEBUG']),
    runId: env['TSRUN_RUN_ID'] ?? 'none',
    restartCount: Number(env['TSRUN_RESTART_COUNT'] ?? 0),
  }
}

function readPatience(option: number | undefined, text: string | undefined): number {
  if (option !== undefined) return option
  const seconds = readNumber('TSRUN_STALL_WARNING', text, DEFAULT_STALL, (value) =>
    value >= 0 ? undefined : 'seconds, 0 or more',
  )
  return seconds === 0 ? Infinity : seconds * 1000
}

function readDebug(option: string | undefined, text: string | undefined): boolean {
  const level = option ?? (text === undefined || text === '' ? 'off' : text)
  if (level === 'off' || level === 'detail') return level === 'detail'
  const facts = { value: JSON.stringify(level), expected: 'off or detail' }
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_DEBUG', ...facts })
}

function isCount(value: number): string | undefined {
  const isValid = Number.isInteger(value) && value >= 1 && value <= MOST_ENTRIES
  return isValid ? undefined : `an integer from 1 to ${MOST_ENTRIES}`
}

/** @param problemOf - what was expected instead, or undefined */
function readNumber(
  variable: string,
  text: string | undefined,
  fallback: number,
  problemOf: (value: number) => string | undefined,
): number {
  if (text === undefined || text === '') return fallback
  const value = Number(text)
  const expected = problemOf(value)
  if (expected !== undefined) {
    throw tsrError('ERR_TSR_ENVIRONMENT', { variable, value: JSON.stringify(text), expected })
  }
  return value
}
