import { choice, count, positive, tsrError, where, type Schema } from '@tsrun/core'

/** How much of what happens is recorded and reported. */
export interface DiagnosisSettings {
  /** Folder for dumps of the flight recorder; undefined: they are only written on request. */
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

/** For worlds within one thread, and for tests: nothing is written. */
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

const stallWarningRule = positive('milliseconds above 0')
const debugRule = choice('off', 'detail')
const entriesRule = count({ from: 1, to: 1_000_000 })
const secondsRule = where<number>((value) => Number(value) >= 0, 'seconds, 0 or more')

/** Completes the options from the environment. @throws ERR_TSR_ENVIRONMENT, ERR_TSR_ARGUMENT */
export function readDiagnosis(
  options: { readonly [Name in keyof DiagnosisOptions]: DiagnosisOptions[Name] | undefined },
  env: NodeJS.ProcessEnv,
): DiagnosisSettings {
  const { stallWarning, debug } = options
  const { TSRUN_FLIGHT_DIR: directory } = env
  return {
    flightDirectory: directory === '' ? undefined : directory,
    flightEntries:
      readVariable(env, 'TSRUN_FLIGHT_ENTRIES', entriesRule, Number) ?? DEFAULT_ENTRIES,
    stallWarning:
      stallWarning === undefined
        ? patienceOf(env)
        : stallWarningRule.check('stallWarning', stallWarning),
    detail:
      (debug === undefined
        ? readVariable(env, 'TSRUN_DEBUG', debugRule, String)
        : debugRule.check('debug', debug)) === 'detail',
    runId: env['TSRUN_RUN_ID'] ?? 'none',
    restartCount: Number(env['TSRUN_RESTART_COUNT'] ?? 0),
  }
}

function patienceOf(env: NodeJS.ProcessEnv): number {
  const seconds = readVariable(env, 'TSRUN_STALL_WARNING', secondsRule, Number) ?? DEFAULT_STALL
  return seconds === 0 ? Infinity : seconds * 1000
}

/** Undefined where the variable is not set, or empty. @throws ERR_TSR_ENVIRONMENT */
function readVariable<T>(
  env: NodeJS.ProcessEnv,
  variable: string,
  rule: Schema<T>,
  parse: (text: string) => unknown,
): T | undefined {
  const text = env[variable]
  if (text === undefined || text === '') return undefined
  try {
    return rule.check(variable, parse(text))
  } catch (cause) {
    const facts = { variable, value: JSON.stringify(text), expected: rule.expected }
    throw tsrError('ERR_TSR_ENVIRONMENT', facts, { cause })
  }
}
