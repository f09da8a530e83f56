import { readlinkSync, statSync } from 'node:fs'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as pause } from 'node:timers/promises'
import { isatty } from 'node:tty'
import {
  flag,
  formatBytes,
  formatRankList,
  formatSeconds,
  formatTable,
  monotonicNow,
  namesIn,
  textWidth,
  tsrError,
  visibleText,
} from '@tsrun/core'
import {
  activityOf,
  type RankStatus,
  readStatusPage,
  STATUS_NAME,
  type StatusSnapshot,
} from '@tsrun/distributed/record'
import { timeout, usageError } from '../args/readers.ts'
import { type CommandContext, declareCommand } from './context.ts'
import { watchGpus } from '../gpu-use.ts'
import { type GpuUse, type RankUse, ratesOf, useOf } from '../job/process/process-use.ts'
import { known } from '../job/usage.ts'
import { jsonLine } from '../logs/lines.ts'

const NO_JOB = 'no job of yours runs on this host\n'

const ONE_JOB = { description: 'show only this job' }

/** @param command - the name of the command, for error messages */
function runningJobs(command: string, runId: string | undefined): StatusSnapshot[] {
  if (process.platform !== 'linux') {
    throw usageError(`tsrun ${command} needs /proc, which only Linux has`)
  }
  const jobs = jobsOf(runId)
  if (runId === undefined || jobs.length > 0) return jobs
  const known = findJobs().map((job) => job.runId)
  throw tsrError('ERR_TSR_NO_JOB', { runId, known: known.join(', ') || 'none runs' })
}

function jobsOf(runId: string | undefined): StatusSnapshot[] {
  return findJobs().filter((job) => runId === undefined || job.runId === runId)
}

/** Finds status pages among the open files of launchers, because the pages have no path. */
function findJobs(): StatusSnapshot[] {
  const own = process.getuid?.()
  return namesIn('/proc')
    .filter(
      (name) =>
        /^\d+$/.test(name) && statSync(`/proc/${name}`, { throwIfNoEntry: false })?.uid === own,
    )
    .flatMap((pid) => pagesOf(Number(pid)))
}

function pagesOf(pid: number): StatusSnapshot[] {
  const folder = `/proc/${pid}/fd`
  const files = new Set<number>()
  return namesIn(folder).flatMap((fd): StatusSnapshot[] => {
    try {
      const path = `${folder}/${fd}`
      if (!readlinkSync(path).includes(STATUS_NAME)) return []
      const { ino } = statSync(path)
      // A launcher has two open descriptors of the same status page.
      if (files.has(ino)) return []
      files.add(ino)
      const page = readStatusPage(path)
      // Skip ranks that are starting, because they also keep the page open for a moment.
      return page.launcherPid === pid ? [page] : []
    } catch {
      // The process closed the file during the search.
      return []
    }
  })
}

export const ps = declareCommand({
  usage:
    '$0 ps [run-id] [--json]\n\nShows what each rank of the jobs that you run on this host is doing: its state and ' +
    'since when, the current operation or the last one, its size, the ranks for which ' +
    'it waits, the step and the loss.',
  argument: ONE_JOB,
  flags: { json: { reads: flag, description: 'as a JSON array of jobs, for programs' } },
  run: ({ json }, { console }, [runId]) => {
    const jobs = runningJobs('ps', runId)
    if (json === true) console.write('stdout', jsonLine(jobs.map(toJson)))
    else console.print('stdout', jobs.map(jobText).join('\n') || NO_JOB)
  },
})

/** Omits the socket, whose name includes a secret. */
function toJson(job: StatusSnapshot): object {
  const ranks = job.ranks.map((rank) => ({ ...rank, state: activityOf(rank) }))
  return { ...job, socket: undefined, ranks }
}

function jobText(job: StatusSnapshot): string {
  // Do not shorten rows in a pipe, because other programs read the rows.
  const width = isatty(1) ? textWidth() : Infinity
  const table = tableOf(
    psColumns,
    job.ranks.map((rank) => cellsOf(rank)),
    width,
  )
  return `${[jobTitle(job), ...table].join('\n')}\n`
}

function jobTitle(job: StatusSnapshot): string {
  const { runId, script, launcherPid, ranks, worldSize, restartCount, abortedBy } = job
  const attempt = restartCount === 0 ? '' : `, attempt ${restartCount}`
  const ends = abortedBy === undefined ? '' : `, ends because of rank ${abortedBy}`
  return `${runId}  ${script} (tsrun ${launcherPid}, ${ranks.length} of ${worldSize} ranks here${attempt}${ends})`
}

const psColumns = [
  'rank',
  'pid',
  'state',
  'for',
  'operation',
  'bytes',
  'waits',
  'step',
  'loss',
] as const

/** The cells of a rank by column. @param rates - undefined if the rank was polled once */
function cellsOf(rank: RankStatus, rates?: ReturnType<typeof ratesOf>) {
  const { operation, group, sequence, running, since, waitsFor } = rank
  const state = activityOf(rank, rates?.computing)
  const more = running > 1 ? ` (and ${running - 1} more)` : ''
  return {
    rank: String(rank.rank),
    pid: String(rank.pid),
    state,
    for: rank.end === undefined ? formatSeconds(Math.max(0, monotonicNow() - since) / 1000) : '–',
    operation: operation === undefined ? '–' : `${operation} #${sequence} of ${group ?? ''}${more}`,
    bytes: rank.state === 'operation' ? formatBytes(rank.bytes) : '–',
    waits: state === 'waiting' ? formatRankList(waitsFor) : '–',
    step: known(rank.step, String),
    loss: known(rank.loss, (loss) => loss.toPrecision(4)),
    'steps/s': known(rates?.stepsPerSecond, (steps) => steps.toPrecision(3)),
    CPU: known(rates?.cpu, (share) => `${Math.round(100 * share)} %`),
    memory: known(rates?.memory, formatBytes),
    GPU: known(rates?.gpu, (percent) => `${percent} %`),
    'GPU memory': known(rates?.gpuMemory, formatBytes),
  }
}

type Cells = ReturnType<typeof cellsOf>

function tableOf(columns: readonly (keyof Cells)[], ranks: readonly Cells[], width: number) {
  const rows = ranks.map((cells) => columns.map((column) => cells[column]))
  return formatTable([columns, ...rows], 'left', width)
}

export const top = declareCommand({
  usage:
    '$0 top [run-id]\n\nShows now and then what each rank of the jobs that you run on this host is doing, how ' +
    'many steps it makes in a second, and what it uses of the CPU and of memory. Where there is ' +
    'nvidia-smi, it also shows how busy the GPU of the rank is, and the memory in use there. ' +
    'Ctrl-C ends it.',
  argument: ONE_JOB,
  flags: {
    interval: {
      reads: timeout,
      fallback: '1',
      description: 'the seconds between two polls',
    },
    once: { reads: flag, description: 'poll twice, show the table and end' },
  },
  run: watch,
})

/** Samples of the ranks by process ID. */
type Samples = ReadonlyMap<number, RankUse>

async function watch(
  { interval, once = false }: { readonly interval: number; readonly once?: boolean | undefined },
  { env, console, interrupts }: CommandContext,
  [runId]: readonly string[],
): Promise<void> {
  const { columns, rows } = process.stdout
  const isTerminal = isatty(1)
  const width = isTerminal ? columns : Infinity
  const isScreen = isTerminal && !once
  const gpus = watchGpus(env, interrupts.stop)
  let before = sample(runningJobs('top', runId), [])
  // Use the alternate screen, so that the terminal restores its contents at the end.
  if (isScreen) console.write('stdout', '\x1b[?1049h')
  try {
    for (let wait = Math.min(interval, 500); ; wait = interval) {
      const asked = gpus.ask()
      await pause(wait, undefined, { signal: interrupts.stop }).catch(() => undefined)
      // Wait for nvidia-smi only if there is a single report: the answer may take seconds.
      if (once) await asked
      if (interrupts.stop.aborted) return
      const jobs = jobsOf(runId)
      const now = sample(jobs, gpus.latest)
      const text = visibleText(topText(jobs, before, now, width))
      before = now
      console.write('stdout', isScreen ? screen(text, rows) : `${text}\n`)
      if (once) return
    }
  } finally {
    if (isScreen) console.write('stdout', '\x1b[?1049l')
  }
}

/** Overwrites the screen with the text. Omits lines that do not fit. */
function screen(text: string, rows: number): string {
  const lines = text.split('\n').slice(0, rows - 1)
  return `\x1b[H${lines.map((line) => `${line}\x1b[K\n`).join('')}\x1b[J`
}

function sample(jobs: readonly StatusSnapshot[], gpus: readonly GpuUse[]): Samples {
  return new Map(
    jobs.flatMap(({ ranks }) => ranks.map((rank) => [rank.pid, useOf(rank, gpus)] as const)),
  )
}

/** The tables of all jobs, with at most `width` characters in a line. */
export function topText(
  jobs: readonly StatusSnapshot[],
  before: Samples,
  now: Samples,
  width: number,
): string {
  if (jobs.length === 0) return NO_JOB.trimEnd()
  const onGpus = [...now.values()].some(({ gpu }) => gpu !== undefined)
  return jobs
    .map((job) => {
      const ranks = job.ranks.map((rank) => {
        const use = now.get(rank.pid)
        return cellsOf(rank, use && ratesOf(rank.pid, before.get(rank.pid), use))
      })
      const title = jobTitle(job)
      const shown = title.length <= width ? title : title.replace(' (tsrun ', '\n  (tsrun ')
      return [...shown.split('\n'), ...fit(ranks, onGpus, width)]
        .map((line) => line.slice(0, width))
        .join('\n')
    })
    .join('\n\n')
}

const topColumns = [
  'rank',
  'state',
  'for',
  'step',
  'loss',
  'steps/s',
  'CPU',
  'memory',
  'GPU',
  'GPU memory',
  'waits',
  'operation',
] as const
/** Columns to omit from a narrow table, in this order. */
const expendable = ['for', 'waits', 'memory', 'GPU memory', 'GPU']
const SHORTEST = 16

function fit(ranks: readonly Cells[], onGpus: boolean, width: number): string[] {
  let columns = topColumns.filter((title) => onGpus || !title.startsWith('GPU'))
  const lines = (): string[] => tableOf(columns, ranks, Infinity)
  for (const column of expendable) {
    if (lines()[0]!.indexOf('operation') + SHORTEST <= width) break
    columns = columns.filter((title) => title !== column)
  }
  return lines()
}

/** Milliseconds for a launcher to answer. A launcher waits 2 seconds for its ranks. */
const ANSWER_TIME = 5000

export const stacks = declareCommand({
  usage:
    '$0 stacks [run-id]\n\nShows the JavaScript stack of each rank of the jobs that you run on this host, and ' +
    'its operation. The ranks keep running; they need not have been started with --inspect.',
  argument: ONE_JOB,
  flags: {},
  run: async (_, { console }, [runId]) => {
    const blocks = await Promise.all(
      runningJobs('stacks', runId).map(async (job) => {
        const { runId: id, script, launcherPid } = job
        return `${id}  ${script} (tsrun ${launcherPid})\n${await askLauncher(job)}`
      }),
    )
    console.print('stdout', blocks.join('\n') || NO_JOB)
  },
})

async function askLauncher({ socket, launcherPid }: StatusSnapshot): Promise<string> {
  if (socket === undefined) return `tsrun ${launcherPid} has no socket at which it could answer\n`
  const [name, secret] = socket.split(' ') as [string, string]
  // The leading zero byte denotes an abstract socket, which has no file.
  const connection = connect(`\0${name}`)
  connection.setTimeout(ANSWER_TIME, () => {
    connection.destroy(new Error(`no answer within ${ANSWER_TIME / 1000} s`))
  })
  try {
    connection.end(secret)
    return await text(connection)
  } catch (error) {
    return `tsrun ${launcherPid} does not answer: ${(error as Error).message}\n`
  }
}
