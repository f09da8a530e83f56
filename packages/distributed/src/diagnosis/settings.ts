import { tsrError } from '@tsrun/core'

/** How much of what happens is recorded and told. */
export interface DiagnosisSettings {
  /** Where dumps of the flight recorder go; undefined: they are written on request only. */
  readonly flightDirectory: string | undefined
  /** Operations that the flight recorder keeps. */
  readonly flightEntries: number
  readonly runId: string
  readonly restartCount: number
}

/** For worlds within one thread: nothing is written. */
export const quietDiagnosis: DiagnosisSettings = {
  flightDirectory: undefined,
  flightEntries: 64,
  runId: 'none',
  restartCount: 0,
}

const DEFAULT_ENTRIES = 2048
const MOST_ENTRIES = 1_000_000

/** Reads the variables of the environment. @throws ERR_TSR_ENVIRONMENT */
export function readDiagnosis(env: NodeJS.ProcessEnv): DiagnosisSettings {
  const { TSRUN_FLIGHT_DIR: directory, TSRUN_FLIGHT_ENTRIES: entries } = env
  return {
    flightDirectory: directory === '' ? undefined : directory,
    flightEntries: readNumber('TSRUN_FLIGHT_ENTRIES', entries, DEFAULT_ENTRIES, isCount),
    runId: env['TSRUN_RUN_ID'] ?? 'none',
    restartCount: Number(env['TSRUN_RESTART_COUNT'] ?? 0),
  }
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
