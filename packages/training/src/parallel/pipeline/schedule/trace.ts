import { formatAction, type ActionLists } from './actions.ts'
import { explainSimulation } from './explain.ts'
import { simulateSchedule, type SimulationOptions, type TimedAction } from './simulate.ts'

/**
 * Simulates a schedule and returns it in the Trace Event Format, which Perfetto and chrome://tracing open,
 * with a thread per rank. Each action is an event, and so is each idle period, with its reason. Durations
 * are in milliseconds.
 *
 * @returns the trace as JSON
 */
export function scheduleTrace(actions: ActionLists, durations: SimulationOptions = {}): string {
  const simulation = simulateSchedule(actions, durations)
  const { idle } = explainSimulation(simulation)
  const event = (
    { rank, start, end }: Pick<TimedAction, 'rank' | 'start' | 'end'>,
    name: string,
    cat: string,
    args: object,
  ) => ({
    name,
    cat,
    ph: 'X',
    pid: 0,
    tid: rank,
    ts: 1000 * start,
    dur: 1000 * (end - start),
    args,
  })
  const events = [
    ...actions.map((_, rank) => ({
      name: 'thread_name',
      ph: 'M',
      pid: 0,
      tid: rank,
      args: { name: `rank ${rank}` },
    })),
    ...simulation.spans.map((span) => {
      const { kind, stage, microbatch } = span
      return event(span, formatAction(span), kind, { stage, microbatch })
    }),
    ...idle.map((each) => event(each, `idle: ${each.reason}`, 'idle', { why: each.text })),
  ]
  return `${JSON.stringify({ traceEvents: events, displayTimeUnit: 'ms' })}\n`
}
