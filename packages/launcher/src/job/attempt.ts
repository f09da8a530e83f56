import { setTimeout as pause } from 'node:timers/promises'
import { formatRanks } from '@tsrun/core'
import { aborted, relayJobControl } from './process/interrupts.ts'
import { areTerminated, settle, stopGroups } from './process/escalation.ts'
import { startRank, type RankProcess } from './process/rank-process.ts'
import { TIMED_OUT } from './failure/exit-codes.ts'
import { toOutcome } from './failure/outcome.ts'
import type { StderrTail } from '../logs/lines.ts'
import { sample, sampleUsage } from './usage.ts'
import type { AttemptFacts, Job, JobContext } from './job.ts'
import { recordRank } from './events.ts'
import type { Interruption } from '../protocol/nodes.ts'
import type { NodePlace, SharedAttempt } from './nodes.ts'
import { planAttempt } from './plan.ts'
import { openRankLogs } from './rank-log.ts'
import { openStackRequests } from './process/stack-requests.ts'
import { openStatusPage } from './status-page.ts'

interface Attempt {
  readonly facts: AttemptFacts
  readonly place: NodePlace
  readonly shared: SharedAttempt
  /** The folder of the log files; undefined without log files. */
  readonly logs: string | undefined
  /** The folder of the flight records; empty if no records are written. */
  readonly records: string
}

/** Milliseconds to wait for remaining output once all ranks of this host have exited. */
const DRAIN_TIME = 1000

/**
 * Starts the ranks of this host, and waits until all have ended or one has failed, here or on another
 * host. Then stops the others. No process of the ranks' process groups outlives the attempt.
 */
export async function runAttempt(job: Job, attempt: Attempt, context: JobContext) {
  const { facts, place, shared, records } = attempt
  const { runId, worldSize, restartCount } = facts
  const { input, watchers = [] } = context
  const ranks: RankProcess[] = []
  const tails: StderrTail[] = []
  let interrupted = false
  let endChaos: (() => void) | undefined
  const run = { runId, worldSize, generation: restartCount, node: place.nodeRank }
  const logs = openRankLogs(job, context, attempt.logs, run)
  const stackRequests = await openStackRequests(job.program, ranks)
  const page = openStatusPage(job, place, restartCount, stackRequests.address)
  stackRequests.readStatus = page.ranks
  let places: ReturnType<typeof page.places>
  try {
    for (const watcher of watchers) watcher.follow?.(facts, page.ranks)
    const environment = { TSRUN_FLIGHT_DIR: records, ...page.environment }
    const plan = planAttempt(job, place, restartCount, { environment, directory: attempt.logs })
    for (const [localRank, one] of plan.entries()) {
      if (context.interrupts.stop.aborted || shared.halt.aborted) break
      const files = logs.open(one.rank, localRank)
      const process = await startRank(one, worldSize, job.env, input?.kindFor(one.rank))
      page.follow(process, localRank)
      input?.add(process)
      ranks.push(process)
      tails.push(logs.follow(process, localRank, files))
      if (context.events !== undefined) recordRank(context.events, process, localRank)
    }
    endChaos = context.chaos?.begin({
      worldSize,
      restartCount,
      ranks,
      status: page.ranks,
    })
    interrupted = await untilDecided(ranks, context, shared, worldSize)
    if (interrupted && isTimeUp(context.interrupts.stop)) {
      const text = await stackRequests.text()
      context.announcer.show('stacks', `tsrun: stacks at the time-out:\n${text}`, { text })
    }
  } finally {
    endChaos?.()
    places = page.places()
    page.abort(ranks)
    await stopRanks(ranks, job.restart.grace, context)
    logs.close()
    page.close()
    stackRequests.close()
  }
  const outcomes = ranks.map((process, i) =>
    toOutcome(process, tails[i]!, places.get(process.rank)),
  )
  return {
    outcomes,
    /** True if the attempt was interrupted, for example by Ctrl-C, before any rank failed. */
    interrupted,
  }
}

/** Whether `--job-timeout` has stopped the job. */
export function isTimeUp({ reason }: AbortSignal): boolean {
  return (reason as Interruption | undefined)?.exitCode === TIMED_OUT
}

/**
 * Resolves when all ranks have succeeded, when it is clear which rank failed first, or when another host
 * ends the attempt. The result is true only if the job was interrupted.
 */
async function untilDecided(
  ranks: readonly RankProcess[],
  { interrupts: { stop }, input }: JobContext,
  { halt, fail }: SharedAttempt,
  worldSize: number,
): Promise<boolean> {
  const endSampling = sampleUsage(ranks)
  const endRelay = relayJobControl(ranks, input)
  const decided = new AbortController()
  const isStopped = (): boolean => stop.aborted
  try {
    const ends = ranks.map(async ({ ended }) => {
      if ((await ended).exitCode !== 0) decided.abort()
    })
    const cut = aborted(AbortSignal.any([stop, halt, decided.signal]))
    await Promise.race([cut, Promise.all(ends)])
    if (isStopped()) return true
    if (halt.aborted) return false
    if (ranks.every(({ end }) => end?.exitCode === 0)) return false
    await settle(ranks, AbortSignal.any([stop, halt]), ranks.length < worldSize)
    if (isStopped() && areTerminated(ranks)) return true
    fail()
    return false
  } finally {
    // Remove the listener, so that listeners do not accumulate over the attempts.
    decided.abort()
    endRelay()
    endSampling()
  }
}

/** Stops every process of the ranks' process groups, and reads their remaining output. */
async function stopRanks(
  ranks: readonly RankProcess[],
  grace: number,
  { announcer, console, interrupts }: JobContext,
): Promise<void> {
  for (const rank of ranks) sample(rank)
  await stopGroups(ranks, grace, interrupts.kill, (left) => {
    const message = `${formatRanks(left)} did not stop within ${grace / 1000} s: SIGKILL`
    announcer.say('kill', message, { ranks: left })
  })
  const closed = Promise.all(ranks.map((rank) => Promise.all([rank.ended, rank.closed])))
  // Keep waiting for a slow reader of our output, but not for a process that holds a pipe open.
  let drained: boolean
  do {
    drained = await Promise.race([closed.then(() => true), pause(DRAIN_TIME, false)])
  } while (!drained && console.isWaiting() && !interrupts.kill.aborted)
  for (const rank of ranks) rank.release()
}
