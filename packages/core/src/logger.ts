import { host } from '#host'
import { tsrError } from './errors/tsr-error.ts'

const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

type Level = (typeof levels)[number]
type Severity = 'debug' | 'info' | 'warn' | 'error'
type Environment = Readonly<Record<string, string | undefined>>
type Write = (facts: object, message: string) => void

/** One function for each severity. Lines below the level of the logger are dropped. */
export type Logger = Readonly<Record<Severity, Write>>

/**
 * Creates the logger of a process. It writes JSON lines to standard error, each with the fields of the
 * rank, synchronously and without a pino transport, so that no line is lost at `process.exit`. Most
 * ranks never write a line, so pino is loaded with the first one.
 *
 * TSRUN_LOG_LEVEL sets the level (default `warn`).
 *
 * @throws ERR_TSR_ARGUMENT, see `readLogLevel`
 */
export function createLogger(name: string, options: { level?: Level } = {}): Logger {
  const { level } = { level: readLogLevel(), ...options }
  let logger: Logger | undefined
  const writer = (severity: Severity): Write => {
    if (levels.indexOf(severity) < levels.indexOf(level)) return () => undefined
    return (facts, message) => {
      logger ??= host.openLog({ name, ...rankOf(host.env) }, level)
      logger[severity](facts, message)
    }
  }
  return {
    debug: writer('debug'),
    info: writer('info'),
    warn: writer('warn'),
    error: writer('error'),
  }
}

/** No full `readRankEnvironment`: what else is wrong there must not stop a line. */
function rankOf(env: Environment): object {
  const { RANK: rank, NODE_RANK: nodeRank = 0, TSRUN_RUN_ID: runId = 'none' } = env
  if (rank === undefined) return {}
  const localRank = env['TSRUN_LOCAL_RANK'] ?? env['LOCAL_RANK'] ?? rank
  return { rank: Number(rank), localRank: Number(localRank), nodeRank: Number(nodeRank), runId }
}

/**
 * The level of TSRUN_LOG_LEVEL. Where nothing is logged, only this finds a wrong one.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function readLogLevel(env: Environment = host.env): Level {
  const given = env['TSRUN_LOG_LEVEL'] ?? ''
  const value = given === '' ? 'warn' : given
  const level = levels.find((known) => known === value)
  if (level !== undefined) return level
  const expected = `one of ${levels.join(', ')}`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'TSRUN_LOG_LEVEL', value, expected })
}
