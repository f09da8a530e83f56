import { pino, type Logger, type LoggerOptions } from 'pino'
import { readRankEnvironment } from './environment.ts'
import { tsrError } from './errors/tsr-error.ts'

export type { Logger }

/**
 * Creates the logger of a process. It writes JSON lines to standard error, each with the fields of the
 * rank, synchronously and without a pino transport, so that no line is lost at `process.exit`.
 *
 * TSRUN_LOG_LEVEL sets the level (default `warn`).
 *
 * @throws ERR_TSR_ENVIRONMENT, ERR_TSR_ARGUMENT
 */
export function createLogger(name: string, options: LoggerOptions = {}): Logger {
  const rank = readRankEnvironment()
  const base =
    rank === undefined
      ? { name }
      : {
          name,
          rank: rank.rank,
          localRank: rank.localRank,
          nodeRank: rank.nodeRank,
          runId: rank.runId,
        }
  return pino({ level: readLevel(), base, ...options }, pino.destination({ dest: 2, sync: true }))
}

function readLevel(): string {
  const level = process.env['TSRUN_LOG_LEVEL'] ?? 'warn'
  const levels = [...Object.values(pino.levels.labels), 'silent']
  if (levels.includes(level)) return level
  const expected = `one of ${levels.join(', ')}`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'TSRUN_LOG_LEVEL', value: level, expected })
}
