import { act, type Action } from './actions.ts'
import { dualPipeV, zeroBubbleV } from './v-orders.ts'

/**
 * The actions of one rank in a schedule, in order. Stages are assigned to ranks round-robin, `chunks`
 * to each rank; with one stage per rank, the stage number is the rank. In the orders whose names end in
 * `-v`, rank r has the stages r and 2 ranks - 1 - r.
 */
export type Order = (rank: number, ranks: number, microbatches: number, chunks: number) => Action[]

/** One micro-batch in the pipeline at a time, as in naive model parallelism. */
const naive: Order = (stage, _stages, microbatches) =>
  range(0, microbatches).flatMap((m) => [act('F', stage, m), act('B', stage, m)])

/** All forwards, then all backwards (Huang et al., GPipe, 2018). */
const gpipe: Order = (stage, _stages, microbatches) => [
  ...range(0, microbatches).map((m) => act('F', stage, m)),
  ...range(0, microbatches).map((m) => act('B', stage, m)),
]

/**
 * A warm-up of as many forwards as there are later stages, then one forward and one backward in turn,
 * then the remaining backwards (Narayanan et al., PipeDream-Flush, 2021). The bubble is as large as
 * GPipe's, but at most `stages - stage` micro-batches are in flight.
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
 * 1F1B with backward passes in halves (Qi et al., Zero Bubble Pipeline Parallelism, 2023, H1): the
 * gradient of the input is sent at once; the gradients of the weights are computed when the rank would
 * be idle, at most `stage` micro-batches later. If F, I and W take equally long, the bubble is a third
 * of 1F1B's, with `stages` micro-batches in flight on every rank.
 *
 * With several chunks per rank it is PyTorch's interleaved zero bubble: micro-batches go through the
 * chunks in rounds of M / floor(M / ranks). If that is not a whole number, all of them are one round.
 */
const interleavedZeroBubble: Order = (rank, ranks, microbatches, chunks) => {
  const rounds = Math.max(1, Math.floor(microbatches / ranks))
  const size = microbatches % rounds === 0 ? microbatches / rounds : microbatches
  const visits = visitsOf(size, chunks, microbatches)
  const forwards = visits.map(({ chunk, microbatch }) => act('F', chunk * ranks + rank, microbatch))
  const backwards = (kind: 'I' | 'W'): Action[] =>
    visits.map(({ chunk, microbatch }) =>
      act(kind, (chunks - 1 - chunk) * ranks + rank, microbatch),
    )
  const weights = backwards('W')
  const warmup = Math.min(ranks - rank - 1 + (chunks - 1) * size, forwards.length)
  return [
    ...forwards.slice(0, warmup),
    ...backwards('I').flatMap((half, index) => [
      ...forwards.slice(warmup + index, warmup + index + 1),
      half,
      ...weights.slice(Math.max(0, index - rank), Math.max(0, index - rank + 1)),
    ]),
    ...weights.slice(Math.max(0, weights.length - rank)),
  ]
}

/**
 * Interleaved 1F1B (Narayanan et al., Megatron-LM, 2021): rank r has the stages r, r + ranks, r + 2
 * ranks and so on, its *chunks* of the model. Groups of as many micro-batches as there are ranks go
 * through one chunk, then through the next. After a warm-up one forward and one backward alternate.
 * With v chunks per rank the bubble is the 1F1B bubble divided by v, for v times as many messages.
 *
 * If the number of micro-batches is not a multiple of the number of ranks, all forwards come first.
 */
const interleaved: Order = (rank, ranks, microbatches, chunks) => {
  const visits = visitsOf(ranks, chunks, microbatches)
  const forwards = visits.map(({ chunk, microbatch }) => act('F', chunk * ranks + rank, microbatch))
  const backwards = visits.map(({ chunk, microbatch }) =>
    act('B', (chunks - 1 - chunk) * ranks + rank, microbatch),
  )
  const total = visits.length
  const warmup =
    microbatches % ranks === 0
      ? Math.min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, total)
      : total
  const steady = forwards.slice(warmup).flatMap((forward, i) => [forward, backwards[i]!])
  return [...forwards.slice(0, warmup), ...steady, ...backwards.slice(total - warmup)]
}

/**
 * A looped, breadth-first order (Lamy-Poirier, 2022): stages are assigned as for `interleaved`, and all
 * micro-batches go forward through one chunk, then through the next, as in GPipe; backward they go in
 * the reverse order of the chunks. The bubble is the same as for `interleaved`, even if the number of
 * micro-batches is not a multiple of the number of ranks. The cost is memory: all micro-batches of all
 * chunks are in flight.
 */
const looped: Order = (rank, ranks, microbatches, chunks) => {
  const list = (kind: 'F' | 'B', chunk: number): Action[] =>
    range(0, microbatches).map((m) => act(kind, chunk * ranks + rank, m))
  const order = range(0, chunks)
  return [
    ...order.flatMap((chunk) => list('F', chunk)),
    ...order.toReversed().flatMap((chunk) => list('B', chunk)),
  ]
}

export const orders = {
  naive,
  gpipe,
  '1f1b': oneForwardOneBackward,
  'zb-h1': interleavedZeroBubble,
  interleaved,
  looped,
  'interleaved-zb': interleavedZeroBubble,
  'zb-v': zeroBubbleV,
  'dualpipe-v': dualPipeV,
} as const satisfies Record<string, Order>

/** The orders in which ranks may have any number of stages. */
const chunkedNames = ['interleaved', 'looped', 'interleaved-zb'] as const

/** The number of stages per rank in the order `name`. */
export function stagesPerRank(name: unknown): 1 | 2 | 'any' {
  if ((chunkedNames as readonly unknown[]).includes(name)) return 'any'
  return name === 'zb-v' || name === 'dualpipe-v' ? 2 : 1
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, index) => from + index)
}

/** The order in which micro-batches reach the chunks of a rank, in rounds of `size` micro-batches. */
function visitsOf(
  size: number,
  chunks: number,
  microbatches: number,
): { chunk: number; microbatch: number }[] {
  const visits: { chunk: number; microbatch: number }[] = []
  for (let first = 0; first < microbatches; first += size) {
    const end = Math.min(first + size, microbatches)
    for (let chunk = 0; chunk < chunks; chunk++) {
      for (let microbatch = first; microbatch < end; microbatch++)
        visits.push({ chunk, microbatch })
    }
  }
  return visits
}
