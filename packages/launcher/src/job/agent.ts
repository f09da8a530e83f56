import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { isatty } from 'node:tty'
import { formatRanks, isTsrError, visibleText } from '@tsrun/core'
import { checkRanks } from '../args/job-options.ts'
import { attemptDirectory } from '../logs/log-files.ts'
import { TIMED_OUT, USAGE } from './failure/exit-codes.ts'
import { failureText, nodeFailureText, shortFailureText } from './failure/failure-text.ts'
import { watchMemoryEvents } from './placement/limits.ts'
import { addFlight, flightPlace, readFlight } from './failure/flight-records.ts'
import { rankUsage, summaryText } from './usage.ts'
import { isTimeUp, runAttempt } from './attempt.ts'
import type { Job, JobContext } from './job.ts'
import { recordAttempt, recordStart, recordVerdict } from './events.ts'
import {
  exitCodeAt,
  ranksOf,
  worldSizeOf,
  type Conclusion,
  type NodePlace,
  type Nodes,
} from './nodes.ts'
import type { Interruption, NodePlan, RankOutcome } from '../protocol/nodes.ts'

/** Milliseconds to wait for the other hosts when the job is killed. */
const ANSWER_TIME = 1000

type Rendezvous = (job: Job, context: JobContext) => Promise<Nodes>

/** Runs a job to its end. @returns the exit code of the launcher, the same on every host */
export async function runJob(
  job: Job,
  rendezvous: Rendezvous,
  context: JobContext,
): Promise<number> {
  const { interrupts } = context
  recordStart(job, context)
  const over = new AbortController()
  let nodes: Nodes | undefined
  announceInterrupts(job, context, over.signal, () => nodes !== undefined)
  const limit = limitTime(job.restart.jobTimeout, interrupts)
  let silence: NodeJS.Timeout | undefined
  let end: ((exitCode: number) => void) | undefined
  let exitCode = USAGE
  try {
    nodes = await rendezvous(job, context)
    end = context.remember?.(nodes.plan.runId)
    if (isatty(2)) silence = announceSilence(nodes.plan.runId, context)
    checkRanks(job, worldSizeOf(nodes.plan))
    exitCode = await runAttempts(job, nodes, context)
    return exitCode
  } catch (error) {
    const isStopped = nodes === undefined && interrupts.stop.aborted
    if (!isStopped || !isTsrError(error) || error.code !== 'ERR_TSR_ABORTED') throw error
    const { minNodes, nnodes } = job.placement
    return exitCodeAt(interrupts.stop.reason as Interruption, minNodes < nnodes)
  } finally {
    clearTimeout(limit)
    clearTimeout(silence)
    over.abort()
    await nodes?.close()
    end?.(exitCode)
  }
}

async function runAttempts(job: Job, nodes: Nodes, context: JobContext): Promise<number> {
  const { announcer, interrupts, events } = context
  announceNodes(nodes, context)
  let before: NodePlan | undefined
  for (let restartCount = nodes.firstAttempt; ; restartCount++) {
    recordAttempt(nodes, restartCount, before, events)
    before = nodes.plan
    const { plan, nodeRank } = nodes
    const { verdict, reports } = await runOnce(job, nodes, restartCount, context)
    recordVerdict(verdict, nodeRank, restartCount, events)
    showSummary(job, { verdict, reports }, context)
    if (verdict.kind === 'success') return 0
    if (verdict.kind === 'interrupted') return verdict.exitCode
    if (verdict.kind === 'change') {
      const { length } = nodes.plan.nodes
      const on = length === 1 ? 'this host' : `${length} hosts`
      announcer.say('change', `${verdict.reason}; starting all ranks again on ${on}`, {
        restartCount,
      })
      announceNodes(nodes, context)
      continue
    }
    const { failure } = verdict
    const zero = plan.nodes[0]!
    const text = (colour: boolean): string => {
      if (reports === undefined)
        return shortFailureText(failure, `the report is on node 0 (${zero.host})`)
      return 'ended' in failure ? failureText(failure, colour) : nodeFailureText(failure, colour)
    }
    const attempt = { runId: plan.runId, restartCount }
    for (const watcher of context.watchers ?? []) {
      watcher.showFailure?.(visibleText(text(false)), attempt)
    }
    // Before a restart, point to the details instead of printing them.
    const logs = job.output.kept === undefined ? undefined : `tsrun logs ${plan.runId}`
    const where =
      verdict.kind === 'failure' && verdict.restart ? (verdict.failure.logs ?? logs) : undefined
    const shown =
      where === undefined
        ? text(job.colour.stderr)
        : shortFailureText(failure, `see ${where}`, 'attempt')
    announcer.show('failure', shown, failure)
    if (verdict.kind === 'lost' || verdict.restart === undefined) return failure.jobExitCode
    if (interrupts.stop.aborted) return isTimeUp(interrupts.stop) ? TIMED_OUT : failure.jobExitCode
    const { number, of } = verdict.restart
    const message = `starting all ranks again (restart ${number} of ${of})`
    announcer.say('restart', message, { restartCount: number })
    // Exponential back-off from 0.1 s to 10 s, because the failed resource may need time to recover.
    const milliseconds = Math.min(10_000, 100 * 2 ** restartCount)
    await pause(milliseconds, undefined, { signal: interrupts.stop }).catch(() => undefined)
  }
}

/** Runs one attempt of the job: starts the ranks of this host, and agrees on the outcome with all hosts. */
export async function runOnce(
  job: Job,
  nodes: Nodes,
  restartCount: number,
  context: JobContext,
): Promise<Conclusion> {
  const { program, output } = job
  const { plan, nodeRank } = nodes
  const memory = watchMemoryEvents()
  const folderOf = (logs: string | undefined, attempt = restartCount): string | undefined =>
    logs === undefined ? undefined : attemptDirectory(logs, plan.runId, attempt)
  const directory = folderOf(output.directory)
  // Keep the logs of two attempts, so that their size stays limited.
  const old = folderOf(output.kept, restartCount - 2)
  if (old !== undefined) rmSync(old, { recursive: true, force: true })
  const ranks = ranksOf(plan, nodeRank)
  const { host = '', port, rank } = program.inspect ?? {}
  if (rank !== undefined && ranks.includes(rank)) {
    const where = port === undefined ? '' : ` at ${host}:${port}`
    context.announcer.say('debugger', `rank ${rank} waits for a debugger${where}`, { rank })
  }
  const attempt = { runId: plan.runId, worldSize: worldSizeOf(plan), restartCount }
  const flight = flightPlace(directory, job.env)
  const concluded = new AbortController()
  let keepsRecords = false
  try {
    const shared = nodes.begin(restartCount)
    const folders = { logs: directory ?? folderOf(output.kept), records: flight.forRanks }
    const { outcomes, interrupted } = await runAttempt(
      job,
      { facts: attempt, ...folders, place: nodes, shared },
      context,
    )
    if (interrupted) showErrors(outcomes, context)
    const { stop, kill } = context.interrupts
    const conclusion = shared.conclude({
      nodeRank,
      outcomes,
      interruption: interrupted ? (stop.reason as Interruption) : undefined,
      facts: {
        host: hostname(),
        memory: memory(),
        logs: directory,
        isDetailed: job.env['TSRUN_DEBUG'] === 'detail',
        records: flight.kept(),
      },
      flight: interrupted ? [] : readFlight(flight.folder, attempt, ranks),
    })
    // After a second Ctrl-C, do not wait for a host that does not answer.
    const { verdict, reports } = await Promise.race([conclusion, giveUp(kill, concluded.signal)])
    if (reports === undefined || (verdict.kind !== 'failure' && verdict.kind !== 'lost'))
      return { verdict, reports }
    const others = reports.filter((report) => report.nodeRank !== nodeRank)
    const records = others.flatMap((report) => report.flight)
    addFlight(flight.folder, records, attempt)
    keepsRecords = true
    if (verdict.kind === 'lost') return { verdict, reports }
    const failure = { ...verdict.failure, records: flight.kept() }
    return { verdict: { ...verdict, failure }, reports }
  } finally {
    concluded.abort()
    flight.close(keepsRecords)
  }
}

/** @param unwanted - removes the listener when aborted, so that listeners do not accumulate */
async function giveUp(kill: AbortSignal, unwanted: AbortSignal): Promise<Conclusion> {
  if (!kill.aborted) await once(kill, 'abort', { signal: unwanted })
  await pause(ANSWER_TIME)
  const { exitCode } = kill.reason as Interruption
  return { verdict: { kind: 'interrupted', exitCode }, reports: undefined }
}

/** Announces the nodes: node 0 lists all of them, any other node only itself. */
function announceNodes({ plan, nodeRank: own }: NodePlace, { announcer }: JobContext): void {
  const { nodes } = plan
  if (nodes.length === 1) return
  const list = nodes
    .filter(({ nodeRank }) => own === 0 || nodeRank === own)
    .map(({ nodeRank, host, address }) => {
      const ranks = formatRanks(ranksOf(plan, nodeRank))
      return `node ${nodeRank} ${host} (${address}): ${ranks}`
    })
  const count = `${nodes.length} nodes${own === 0 ? '' : '; this one is'}`
  announcer.say('nodes', `run ${plan.runId} on ${count}: ${list.join('; ')}`, { nodes })
}

function limitTime(
  milliseconds: number | undefined,
  interrupts: JobContext['interrupts'],
): NodeJS.Timeout | undefined {
  if (milliseconds === undefined) return undefined
  const reason = `the job has taken ${milliseconds / 1000} s (--job-timeout)`
  return setTimeout(() => {
    // If the job is already stopping, another interrupt would end the grace period.
    if (!interrupts.stop.aborted) interrupts.interrupt({ exitCode: TIMED_OUT, reason })
  }, milliseconds)
}

/** Milliseconds without any output after which a terminal shows that the job runs. */
const SILENCE = 5000

export function announceSilence(
  runId: string,
  { announcer, console }: Pick<JobContext, 'announcer' | 'console'>,
): NodeJS.Timeout {
  const say = (): void => {
    if (console.isUsed) return
    announcer.say('silence', `run ${runId} has shown nothing yet; tsrun ps shows what it does`)
  }
  return setTimeout(say, SILENCE).unref()
}

/**
 * @param over - aborted when the job has ended
 * @param hasBegun - whether all hosts have joined the job
 */
function announceInterrupts(
  { restart }: Job,
  { announcer, interrupts }: JobContext,
  over: AbortSignal,
  hasBegun: () => boolean,
): void {
  const stop = (): void => {
    const { reason } = interrupts.stop.reason as Interruption
    if (reason === undefined) return
    const hint = reason === 'Ctrl-C' ? '; Ctrl-C again: kill them now' : ''
    const grace = `SIGKILL after ${restart.grace / 1000} s`
    const what = hasBegun()
      ? `stopping the ranks (${grace}${hint})`
      : 'the job ends before its start'
    announcer.say('interrupt', `${reason}: ${what}`, { reason })
  }
  const kill = (): void => {
    announcer.say('kill', 'killing the ranks now')
  }
  interrupts.stop.addEventListener('abort', stop, { signal: over })
  interrupts.kill.addEventListener('abort', kill, { signal: over })
}

/** Shows the errors of the ranks of an interrupted job, which has no failure report. */
function showErrors(outcomes: readonly RankOutcome[], { announcer }: JobContext): void {
  const texts = new Set(outcomes.flatMap(({ error }) => (error?.silent ? error.text : [])))
  for (const text of texts) {
    const ranks = outcomes.filter(({ error }) => error?.text === text).map(({ rank }) => rank)
    announcer.show('error', `tsrun: ${formatRanks(ranks)} died of ${text}\n`, { ranks, text })
  }
}

function showSummary(
  { output }: Job,
  { verdict, reports }: Conclusion,
  { announcer }: JobContext,
): void {
  const isLast = verdict.kind !== 'failure' || verdict.restart === undefined
  const isWanted = output.summary && output.format === 'pretty' && isLast
  if (verdict.kind === 'interrupted' || reports === undefined) return
  const usages = reports
    .flatMap(({ outcomes, nodeRank: node, facts: { host } }) =>
      outcomes.map((outcome) => rankUsage(outcome, { node, host })),
    )
    .sort((a, b) => a.rank - b.rank)
  const text = isWanted && usages.length > 0 ? summaryText(usages) : ''
  announcer.show('summary', text, { ranks: usages })
}
