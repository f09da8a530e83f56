import { closeSync, constants } from 'node:fs'
import { hostname } from 'node:os'
import { resolve } from 'node:path'
import { openFile, writeWhole } from '@tsrun/core'
import type { OutputOptions } from '../args/output-options.ts'
import { usageError } from '../args/readers.ts'
import type { Announcer, Console } from './console.ts'
import { jsonLine } from './json-line.ts'

/** A host of the job. */
interface EventNode {
  readonly node: number
  readonly host: string
  readonly address: string
}

/**
 * The events of a job with their fields, besides `time`, `event`, `job`, `host`, `node` and
 * `generation`. docs/launcher.md describes them.
 */
export interface JobEvents {
  'launcher-started': {
    readonly version: string
    readonly pid: number
    readonly script: string
    readonly arguments: readonly string[]
    readonly nproc: number
    /** The smallest and the largest number of hosts. */
    readonly nnodes: readonly [number, number]
  }
  'attempt-started': {
    readonly worldSize: number
    readonly nodes: number
    readonly ranks: readonly number[]
  }
  'node-joined': { readonly joined: EventNode & { readonly ranks: readonly number[] } }
  'node-left': { readonly left: EventNode & { readonly reason: string } }
  'rank-spawned': { readonly rank: number; readonly localRank: number; readonly pid: number }
  'rank-ready': { readonly rank: number; readonly pid: number }
  'rank-error': {
    readonly rank: number
    readonly name: string
    readonly message: string
    readonly code: string | null
    readonly consequence: boolean
  }
  'checkpoint-saved': { readonly rank: number; readonly step: number; readonly path: string }
  'fault-injected': {
    readonly rank: number
    readonly kind: string
    readonly what: string
    readonly when: string
  }
  'signal-received': { readonly signal: string; readonly force: boolean }
  'rank-exited': {
    readonly rank: number
    readonly pid: number
    readonly exitCode: number | null
    readonly signal: string | null
    /** The signal by which tsrun stopped the rank. */
    readonly stoppedBy: string | null
    readonly seconds: number
  }
  verdict: {
    readonly outcome: 'success' | 'failure' | 'interrupted' | 'change' | 'lost'
    /** The rank that failed first. */
    readonly rank: number | null
    readonly reason: string | null
    readonly error: string | null
    readonly code: string | null
    readonly exitCode: number | null
  }
  restart: { readonly number: number; readonly of: number | null; readonly reason: string }
  'launcher-finished': { readonly exitCode: number; readonly seconds: number }
}

export type EventLog = ReturnType<typeof eventLog>

/** Writes `--event-log`: a line of JSON for each event, at the time of the event. */
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
    record<Name extends keyof JobEvents>(event: Name, facts: JobEvents[Name]): void {
      write(jsonLine({ time: new Date().toISOString(), event, ...scope, ...facts }))
    },
  }
}

/**
 * Opens the event log. If a line cannot be written, logging stops and the job continues.
 *
 * @throws ERR_TSR_USAGE if the file cannot be opened
 */
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
