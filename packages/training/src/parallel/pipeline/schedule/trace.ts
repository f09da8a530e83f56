import { formatAction, type ActionLists } from './actions.ts'
import { explainSimulation } from './explain.ts'
import { simulateSchedule, type SimulationOptions } from './simulate.ts'

/** An event in the Trace Event Format, which Perfetto and chrome://tracing open. */
interface TraceEvent {
  readonly name: string
  readonly cat?: string
  readonly ph: 'X' | 'M'
  readonly pid: number
  readonly tid: number
  readonly ts?: number
  readonly dur?: number
  readonly args: Readonly<Record<string, string | number>>
}

/**
 * Simulates a schedule and returns it as a Chrome trace, with a thread per rank. Each action is an
 * event, and so is each idle period, with its reason. Durations are in milliseconds.
 *
 * @returns the trace as JSON
 */
export function scheduleTrace(actions: ActionLists, durations: SimulationOptions = {}): string {
  const simulation = simulateSchedule(actions, durations)
  const { idle } = explainSimulation(simulation)
  const time = ({ start, end }: { start: number; end: number }): { ts: number; dur: number } => ({
    ts: 1000 * start,
    dur: 1000 * (end - start),
  })
  const events: TraceEvent[] = [
    ...actions.map((_, rank): TraceEvent => ({
      ...{ name: 'thread_name', ph: 'M', pid: 0, tid: rank },
      args: { name: `rank ${rank}` },
    })),
    ...simulation.spans.map((span): TraceEvent => ({
      ...{ name: formatAction(span), cat: span.kind, ph: 'X', pid: 0, tid: span.rank },
      ...time(span),
      args: { stage: span.stage, microbatch: span.microbatch },
    })),
    ...idle.map((each): TraceEvent => ({
      ...{ name: `idle: ${each.reason}`, cat: 'idle', ph: 'X', pid: 0, tid: each.rank },
      ...time(each),
      args: { why: each.text },
    })),
  ]
  return `${JSON.stringify({ traceEvents: events, displayTimeUnit: 'ms' })}\n`
}
