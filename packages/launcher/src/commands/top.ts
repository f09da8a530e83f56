import { setTimeout as pause } from 'node:timers/promises'
import { isatty } from 'node:tty'
import { flag, formatBytes, formatTable, visibleText } from '@tsrun/core'
import type { RankStatus, StatusSnapshot } from '@tsrun/distributed/record'
import { time } from '../args/readers.ts'
import { watchGpus } from '../gpu-use.ts'
import { ratesOf, useOf, type GpuUse, type RankUse } from '../job/process/process-use.ts'
import { declareCommand, type CommandContext } from './context.ts'
import { describeState, jobTitle } from './ps.ts'
import { NO_JOB, ONE_JOB, runningJobs } from './running-jobs.ts'

/** `tsrun top [run-id]` */
export const command = declareCommand({
  usage:
    '$0 top [run-id]\n\nShows now and then what each rank of the jobs that you run on this host is doing, how ' +
    'many steps it makes in a second, and what it uses of the CPU and of memory. Where there is ' +
    'nvidia-smi, it also shows how busy the GPU of the rank is, and the memory in use there. ' +
    'Ctrl-C ends it.',
  argument: ONE_JOB,
  flags: {
    interval: {
      reads: time.refine(
        (wait) => wait >= 100 && wait <= 3_600_000,
        'a number of seconds from 0.1 to 3600',
      ),
      fallback: '1',
      description: 'the seconds between two polls',
    },
    once: { reads: flag, description: 'poll twice, show the table and end' },
  },
  run: async ({ interval, once = false }, context, [runId]) => {
    await watch(runId, interval, once, context)
  },
})

/** Samples of the ranks by process ID. */
type Samples = ReadonlyMap<number, RankUse>

async function watch(
  runId: string | undefined,
  interval: number,
  once: boolean,
  { env, console, interrupts }: CommandContext,
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
    for (let isFirst = true; ; isFirst = false) {
      const wait = isFirst ? Math.min(interval, 500) : interval
      const asked = gpus.ask()
      await pause(wait, undefined, { signal: interrupts.stop }).catch(() => undefined)
      // Only a single report waits for nvidia-smi, which may take seconds.
      if (once) await asked
      if (interrupts.stop.aborted) return
      const jobs = runningJobs('top', isFirst ? runId : undefined).filter(
        (job) => runId === undefined || job.runId === runId,
      )
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
  const columns = titles.filter((title) => onGpus || !title.startsWith('GPU'))
  return jobs
    .map((job) => {
      const rows = job.ranks.map((rank) => toRow(rank, before.get(rank.pid), now.get(rank.pid)))
      return [...titleLines(job, width), ...fit(rows, columns, width)]
        .map((line) => line.slice(0, width))
        .join('\n')
    })
    .join('\n\n')
}

/** The title of a job, on two lines if it does not fit on one. */
function titleLines(job: StatusSnapshot, width: number): string[] {
  const title = jobTitle(job)
  const facts = title.lastIndexOf(' (')
  return title.length <= width || facts < 0
    ? [title]
    : [title.slice(0, facts), `  ${title.slice(facts + 1)}`]
}

const titles = [
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
]
/** Columns to omit from a narrow table, in this order. */
const expendable = ['for', 'waits', 'memory', 'GPU memory', 'GPU']
const SHORTEST = 16

function fit(rows: readonly string[][], columns: readonly string[], width: number): string[] {
  let shown = columns
  for (const column of ['', ...expendable]) {
    shown = shown.filter((title) => title !== column)
    const indices = shown.map((title) => titles.indexOf(title))
    const table = [shown, ...rows.map((row) => indices.map((index) => row[index]!))]
    const lines = formatTable(table, 'left', Infinity)
    const start = lines[0]!.indexOf('operation')
    if (start + SHORTEST <= width || column === expendable.at(-1)) return lines
  }
  return []
}

function toRow(rank: RankStatus, before: RankUse | undefined, now: RankUse | undefined): string[] {
  const rates = now && ratesOf(rank.pid, before, now)
  const { state, time, operation, waits } = describeState(rank, rates?.computing)
  const { cpu, stepsPerSecond: steps, memory, gpu: busy, gpuMemory } = rates ?? {}
  return [
    String(rank.rank),
    state,
    time,
    rank.step === undefined ? '–' : String(rank.step),
    rank.loss === undefined ? '–' : rank.loss.toPrecision(4),
    steps === undefined ? '–' : steps.toPrecision(3),
    cpu === undefined ? '–' : `${Math.round(100 * cpu)} %`,
    memory === undefined ? '–' : formatBytes(memory),
    busy === undefined ? '–' : `${busy} %`,
    gpuMemory === undefined ? '–' : formatBytes(gpuMemory),
    waits,
    operation,
  ]
}
