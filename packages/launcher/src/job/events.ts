import type { EventLog } from '../logs/event-log.ts'
import { version } from '../package.ts'
import type { RankProcess } from './process/rank-process.ts'
import type { Job, JobContext } from './job.ts'
import { ranksOf, worldSizeOf, type Nodes } from './nodes.ts'
import type { NodePlan, Verdict } from '../protocol/nodes.ts'

export function recordStart(job: Job, { events, interrupts }: JobContext): void {
  if (events === undefined) return
  const { nproc, minNodes, nnodes } = job.placement
  events.record('launcher-started', {
    version,
    pid: process.pid,
    script: job.script,
    arguments: job.program.arguments,
    nproc,
    nnodes: [minNodes, nnodes],
  })
  for (const [signal, force] of [
    [interrupts.stop, false],
    [interrupts.kill, true],
  ] as const) {
    signal.addEventListener('abort', () => {
      const { reason = 'the output is closed' } = signal.reason as { readonly reason?: string }
      events.record('signal-received', {
        signal: reason === 'Ctrl-C' ? 'SIGINT' : reason,
        force,
      })
    })
  }
}

/** Records the start of an attempt and, on node 0, the hosts that have joined since the last plan. */
export function recordAttempt(
  { plan, nodeRank }: Nodes,
  generation: number,
  before: NodePlan | undefined,
  events: EventLog | undefined,
): void {
  if (events === undefined) return
  events.within({ job: plan.runId, node: nodeRank, generation })
  if (nodeRank === 0) {
    for (const { id, nodeRank: node, host, address } of plan.nodes) {
      if (before?.nodes.some((one) => one.id === id) === true) continue
      events.record('node-joined', { joined: { node, host, address, ranks: ranksOf(plan, node) } })
    }
  }
  events.record('attempt-started', {
    worldSize: worldSizeOf(plan),
    nodes: plan.nodes.length,
    ranks: ranksOf(plan, nodeRank),
  })
}

/** Records the outcome of an attempt, on node 0 only. */
export function recordVerdict(
  verdict: Verdict,
  nodeRank: number,
  generation: number,
  events: EventLog | undefined,
): void {
  if (events === undefined || nodeRank !== 0) return
  const { kind: outcome } = verdict
  const nothing = { rank: null, reason: null, error: null, code: null, exitCode: null }
  events.record('verdict', { outcome, ...nothing, ...factsOf(verdict) })
  if (verdict.kind === 'change') {
    const { reason } = verdict
    events.record('restart', { number: generation + 1, of: null, reason })
  }
  if (verdict.kind === 'failure' && verdict.restart !== undefined) {
    const { rank, ended } = verdict.failure
    events.record('restart', { ...verdict.restart, reason: `rank ${rank} ${ended}` })
  }
}

function factsOf(verdict: Verdict): object {
  switch (verdict.kind) {
    case 'success':
      return { exitCode: 0 }
    case 'interrupted':
      return { exitCode: verdict.exitCode }
    case 'change':
      return { reason: verdict.reason }
    case 'lost': {
      const { node, host, reason, jobExitCode: exitCode } = verdict.failure
      return { reason: `node ${node} (${host}) is gone: ${reason}`, exitCode }
    }
    case 'failure': {
      const { rank, ended, what = null, code = null, jobExitCode: exitCode } = verdict.failure
      return { rank, reason: ended, error: what, code, exitCode }
    }
  }
}

export function recordRank(events: EventLog, process: RankProcess, localRank: number): void {
  const { rank, pid, onError } = process
  events.record('rank-spawned', { rank, localRank, pid })
  process.onCheckpoint = ({ step, path }) => {
    events.record('checkpoint-saved', { rank, step, path })
  }
  process.onError = (report) => {
    onError(report)
    const { name, message, code = null, distance } = report
    events.record('rank-error', { rank, name, message, code, consequence: distance === 3 })
  }
  void process.ended.then(({ at, exitCode, signal }) => {
    const seconds = Math.round(at - process.startedAt) / 1000
    const stoppedBy = process.stopSignal ?? null
    events.record('rank-exited', { rank, pid, exitCode, signal, stoppedBy, seconds })
  })
}
