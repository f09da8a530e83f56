import type { Action, ActionKind } from './action.ts'
import { interleaved } from './interleaved.ts'
import { looped } from './looped.ts'

/**
 * One rank's share of a schedule: what it runs, in order. Stages are dealt to the ranks in turn,
 * `chunks` each; but for `interleaved` and `looped` each has one, and its stage is its rank.
 */
export type Order = (rank: number, ranks: number, microbatches: number, chunks: number) => Action[]

/** One micro-batch in the pipe at a time: what cutting a model by hand gives. */
const naive: Order = (stage, _stages, microbatches) =>
  range(0, microbatches).flatMap((m) => [act('F', stage, m), act('B', stage, m)])

/** All forwards, then all backwards (Huang et al., GPipe, 2018). */
const gpipe: Order = (stage, _stages, microbatches) => [
  ...range(0, microbatches).map((m) => act('F', stage, m)),
  ...range(0, microbatches).map((m) => act('B', stage, m)),
]

/**
 * Warm up with as many forwards as there are stages behind, then one forward, one backward, then
 * drain (Narayanan et al., PipeDream-Flush, 2021). GPipe's bubble, but at most `stages - stage`
 * micro-batches in flight.
 */
const oneForwardOneBackward: Order = (stage, stages, microbatches) => {
  const warmup = Math.min(stages - stage - 1, microbatches)
  const steady = microbatches - warmup
  return [
    ...range(0, warmup).map((m) => act('F', stage, m)),
    ...range(0, steady).flatMap((m) => [act('F', stage, m + warmup), act('B', stage, m)]),
    ...range(steady, microbatches).map((m) => act('B', stage, m)),
  ]
}

/**
 * 1F1B whose backwards are cut in halves (Qi et al., Zero Bubble Pipeline Parallelism, 2023, H1): the
 * gradient of the input goes on at once, and those of the weights wait until there is nothing else
 * to do, at most `stage` micro-batches. A third of 1F1B's bubble where all three take as long, for
 * `stages` micro-batches in flight on every rank.
 */
const zeroBubble: Order = (stage, stages, microbatches) => {
  const actions: Action[] = []
  const next = { F: 0, I: 0, W: 0 }
  const run = (kind: 'F' | 'I' | 'W'): void => {
    actions.push(act(kind, stage, next[kind]++))
  }
  const warmup = Math.min(stages - stage - 1, microbatches)
  while (next.F < warmup) run('F')
  while (next.I < microbatches) {
    if (next.F < microbatches) run('F')
    run('I')
    if (next.I - next.W > stage) run('W')
  }
  while (next.W < microbatches) run('W')
  return actions
}

export const orders = {
  naive,
  gpipe,
  '1f1b': oneForwardOneBackward,
  'zb-h1': zeroBubble,
  interleaved,
  looped,
} as const satisfies Record<string, Order>

/** Whether each rank may have several stages. */
export function takesChunks(name: unknown): boolean {
  return name === 'interleaved' || name === 'looped'
}

function act(kind: ActionKind, stage: number, microbatch: number): Action {
  return { kind, stage, microbatch }
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, index) => from + index)
}
