import { choice, count, number, readVariable } from '@tsrun/core'

/** The settings of the flight recorder and the stall warnings of a rank. */
export interface DiagnosisSettings {
  /** Folder for dumps of the flight recorder on failure; undefined: dumps are written only on request. */
  readonly flightDirectory: string | undefined
  /** Number of operations that the flight recorder keeps. */
  readonly flightEntries: number
  /** Milliseconds that an operation waits before a warning; Infinity: never. */
  readonly stallWarning: number
  /** Whether to record and compare the call sites of operations. */
  readonly detail: boolean
  readonly runId: string
  readonly restartCount: number
}

/** Settings that write nothing, for in-process worlds and tests. */
export const quietDiagnosis: DiagnosisSettings = {
  flightDirectory: undefined,
  flightEntries: 64,
  stallWarning: Infinity,
  detail: false,
  runId: 'none',
  restartCount: 0,
}

const debugRule = choice('off', 'detail').optional()
const entriesRule = count({ from: 1, to: 1_000_000 }).default(2048)
const secondsRule = number.refine((value) => value >= 0, 'seconds, 0 or more').default(30)

/** Reads the settings from the environment. @throws ERR_TSR_ENVIRONMENT */
export function readDiagnosis(env: NodeJS.ProcessEnv): DiagnosisSettings {
  const { TSRUN_FLIGHT_DIR: directory } = env
  const seconds = readVariable('TSRUN_STALL_WARNING', secondsRule, env)
  return {
    flightDirectory: directory === '' ? undefined : directory,
    flightEntries: readVariable('TSRUN_FLIGHT_ENTRIES', entriesRule, env),
    stallWarning: seconds === 0 ? Infinity : seconds * 1000,
    detail: readVariable('TSRUN_DEBUG', debugRule, env) === 'detail',
    runId: env['TSRUN_RUN_ID'] ?? 'none',
    restartCount: Number(env['TSRUN_RESTART_COUNT'] ?? 0),
  }
}
