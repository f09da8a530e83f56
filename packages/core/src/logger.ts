import { host } from '#host'
import { choice, readVariable, type Environment } from './schema.ts'

const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
const levelRule = choice(...levels).default('warn')

type Level = (typeof levels)[number]
type Severity = 'debug' | 'info' | 'warn' | 'error'
type Write = (facts: object, message: string) => void

/** One function for each severity. Lines below the level of the logger are dropped. */
export type Logger = Readonly<Record<Severity, Write>>

/**
 * Creates the logger of a process. It writes JSON lines with the fields of the rank to standard error,
 * in the format of pino. Writes are synchronous, so `process.exit` loses no line.
 *
 * TSRUN_LOG_LEVEL sets the level (default `warn`).
 *
 * @throws ERR_TSR_ENVIRONMENT for an invalid level
 */
export function createLogger(name: string): Logger {
  const lowest = readLogLevel()
  const writer = (severity: Severity): Write => {
    const place = levels.indexOf(severity)
    if (place < levels.indexOf(lowest)) return () => undefined
    return (facts, msg) => {
      const level = 10 * (place + 1)
      const line = { level, time: Date.now(), name, ...rankOf(host.env), ...facts, msg }
      host.writeLog(severity, line)
    }
  }
  return {
    debug: writer('debug'),
    info: writer('info'),
    warn: writer('warn'),
    error: writer('error'),
  }
}

/** Unlike `readRankEnvironment`, ignores invalid variables, which must not prevent logging. */
function rankOf(env: Environment) {
  const { RANK: rank, NODE_RANK: nodeRank = 0, TSRUN_RUN_ID: runId = 'none' } = env
  if (rank === undefined) return {}
  const localRank = env['TSRUN_LOCAL_RANK'] ?? env['LOCAL_RANK'] ?? rank
  return { rank: Number(rank), localRank: Number(localRank), nodeRank: Number(nodeRank), runId }
}

/** Reads TSRUN_LOG_LEVEL. Call it early to report a wrong level at once. @throws ERR_TSR_ENVIRONMENT */
export function readLogLevel(env: Environment = host.env): Level {
  return readVariable('TSRUN_LOG_LEVEL', levelRule, env)
}
