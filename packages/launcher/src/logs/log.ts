import { createRequire } from 'node:module'
import { messageOf, readLogLevel } from '@tsrun/core'
import type * as Pino from 'pino'

const require = createRequire(import.meta.url)
let logger: Pino.Logger | undefined

/**
 * Logs which optional feature the launcher omits, and why: a JSON line of level `info` on standard error.
 * Loads pino only for the first line, because most jobs never log a line.
 */
export function logProblem(error: unknown, message: string): void {
  const level = readLogLevel()
  if (!['trace', 'debug', 'info'].includes(level)) return
  const { pino } = require('pino') as typeof Pino
  logger ??= pino({ level, base: { name: 'launcher' } }, pino.destination({ dest: 2, sync: true }))
  logger.info({ reason: messageOf(error) }, message)
}
