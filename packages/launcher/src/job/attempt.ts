import { setTimeout as pause } from 'node:timers/promises'
import { formatRanks } from '@tsrun/core'
import type { Announcer, Console } from '../logs/console.ts'
import { type Interrupts, relayJobControl } from '../processes/interrupts.ts'
import { stopGroups, settle } from '../processes/ladder.ts'
import { RankProcess } from '../processes/rank-process.ts'
import { toOutcome, type RankOutcome } from '../report/outcome.ts'
import { sample, sampleUsage } from '../report/usage.ts'
import type { Job } from './job.ts'
import type { SharedLife } from './nodes.ts'
import type { RankPlan } from './plan.ts'
import { logRank, openFiles, type RankLineReader, type RankLog } from './rank-log.ts'
import type { Board } from './status-page.ts'

/** What all lives of a job share. */
export interface Surroundings {
  readonly console: Console
  readonly announcer: Announcer
  readonly interrupts: Interrupts
  /** Gets every line of the ranks, whether it is shown or not. */
  readonly onLine?: RankLineReader
}

export interface LifeResult {
  readonly outcomes: readonly RankOutcome[]
  /** It was stopped from outside before any rank failed. */
  readonly interrupted: boolean
}

interface LoggedRank {
  readonly process: RankProcess
  readonly log: RankLog
}

/** Milliseconds for the rest of the output once every process of the job is gone. */
const DRAIN_TIME = 1000

/** One life of a job on this host. */
export interface Life {
  readonly plan: readonly RankPlan[]
  readonly worldSize: number
  /** Directory of the log files, if there are any. */
  readonly directory: string | undefined
  /** The part that the other hosts have in it. */
  readonly shared: SharedLife
  /** What the ranks of this host publish. */
  readonly board: Board
}

/**
 * Starts the ranks of this host, waits for the end of the last or the failure of the first, here or
 * elsewhere, and stops what is left. No process of the ranks' groups survives it.
 *
 * @throws ERR_TSR_LOG_DIRECTORY, ERR_TSR_SPAWN
 */
export async function runLife(job: Job, life: Life, around: Surroundings): Promise<LifeResult> {
  const { plan, worldSize, directory, shared, board } = life
  const ranks: LoggedRank[] = []
  let interrupted = false
  try {
    const to = { options: job.options, worldSize, colour: job.colour, directory, ...around }
    for (const one of plan) {
      if (around.interrupts.stop.aborted || shared.halt.aborted) break
      const files = openFiles(to, one.rank)
      const process = await RankProcess.start(one, worldSize, job.env)
      ranks.push({ process, log: logRank(process, files, to) })
    }
    interrupted = await untilDecided(processesOf(ranks), around.interrupts.stop, life)
  } finally {
    board.abort(processesOf(ranks))
    await stopRanks(processesOf(ranks), job.options.grace, around)
    for (const { log } of ranks) log.close()
    board.close()
  }
  return { outcomes: ranks.map(({ process, log }) => toOutcome(process, log.tail)), interrupted }
}

/**
 * Resolves when all ranks have ended well, when it is clear who failed, when another host says that
 * the life is over, or at an interrupt: then with true.
 */
async function untilDecided(
  ranks: readonly RankProcess[],
  stop: AbortSignal,
  { worldSize, shared: { halt, fail } }: Life,
): Promise<boolean> {
  const endSampling = sampleUsage(ranks)
  const endRelay = relayJobControl(ranks)
  const listening = new AbortController()
  try {
    await new Promise<void>((resolve) => {
      const decide = (): void => {
        resolve()
      }
      for (const signal of [stop, halt]) {
        if (signal.aborted) resolve()
        signal.addEventListener('abort', decide, { signal: listening.signal })
      }
      const ends = ranks.map(async (rank) => {
        const { exitCode } = await rank.ended
        if (exitCode !== 0) resolve()
      })
      void Promise.all(ends).then(decide)
    })
    if (stop.aborted) return true
    if (halt.aborted) return false
    if (ranks.every(({ end }) => end?.exitCode === 0)) return false
    await settle(ranks, AbortSignal.any([stop, halt]), ranks.length < worldSize)
    fail()
    return false
  } finally {
    listening.abort()
    endRelay()
    endSampling()
  }
}

/** Stops every process of the ranks' groups and takes in the last of their output. */
async function stopRanks(
  ranks: readonly RankProcess[],
  grace: number,
  { announcer, console, interrupts }: Surroundings,
): Promise<void> {
  for (const rank of ranks) sample(rank)
  await stopGroups(ranks, {
    grace,
    kill: interrupts.kill,
    onGraceOver: (left) => {
      const who = formatRanks(left)
      announcer.say('kill', `${who} did not stop within ${grace / 1000} s: SIGKILL`, {
        ranks: left,
      })
    },
  })
  const closed = Promise.all(ranks.map((rank) => Promise.all([rank.ended, rank.closed])))
  // A slow reader of our own output may take its time; a stranger who holds a pipe may not.
  let drained: boolean
  do {
    drained = await Promise.race([closed.then(() => true), pause(DRAIN_TIME, false)])
  } while (!drained && console.isWaiting() && !interrupts.kill.aborted)
  for (const rank of ranks) rank.release()
}

function processesOf(ranks: readonly LoggedRank[]): RankProcess[] {
  return ranks.map(({ process }) => process)
}
