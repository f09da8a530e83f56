import { closeSync, constants } from 'node:fs'
import { hostname } from 'node:os'
import { resolve } from 'node:path'
import { openFile, writeWhole } from '@tsrun/core'
import type { OutputOptions } from '../args/output-options.ts'
import { usageError } from '../args/readers.ts'
import type { Announcer, Console } from './console.ts'
import { jsonLine } from './lines.ts'

export type EventLog = ReturnType<typeof eventLog>

/** Writes a line of JSON for each event. docs/launcher.md describes the events and their fields. */
function eventLog(write: (line: string) => void) {
  const scope = {
    job: null as string | null,
    host: hostname(),
    node: null as number | null,
    generation: null as number | null,
  }
  return {
    /** Sets the job, node and attempt of the following events. */
    within(next: Omit<typeof scope, 'host'>): void {
      Object.assign(scope, next)
    },
    record(event: string, facts: object): void {
      write(jsonLine({ time: new Date().toISOString(), event, ...scope, ...facts }))
    },
  }
}

/** Opens the event log. If a line cannot be written, logging stops and the job continues. */
export function openEventLog(
  target: OutputOptions['eventLog'],
  cwd: string,
  console: Console,
  announcer: Announcer,
): EventLog | undefined {
  if (target === undefined) return undefined
  if (target === 'console') {
    return eventLog((line) => {
      console.write('stderr', line)
    })
  }
  const path = resolve(cwd, target.file)
  const { O_APPEND, O_CREAT, O_NOFOLLOW, O_WRONLY } = constants
  let fd: number | undefined
  try {
    fd = openFile(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600)
  } catch (cause) {
    const { message } = cause as Error
    throw usageError(`The event log ${target.file} cannot be opened: ${message}`, cause)
  }
  return eventLog((line) => {
    if (fd === undefined) return
    try {
      writeWhole(fd, Buffer.from(line))
    } catch (error) {
      closeSync(fd)
      fd = undefined
      const reason = (error as Error).message
      announcer.say('log-failure', `the event log ${path} ends here: ${reason}`, { path })
    }
  })
}
