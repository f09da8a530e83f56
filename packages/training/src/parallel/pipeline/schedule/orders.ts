import { act, type Action } from './actions.ts'
import { dualPipeV, zeroBubbleV } from './v-orders.ts'

/**
 * Returns the actions of one rank in a schedule, in order. Each rank has `chunks` stages, which are
 * assigned round-robin. With one stage per rank, a stage has the number of its rank. In orders whose
 * names end in `-v`, rank r has the stages r and 2 x ranks - 1 - r.
 */
export type Order = (rank: number, ranks: number, microbatches: number, chunks: number) => Action[]

/** Runs one micro-batch at a time through the whole pipeline, as in naive model parallelism. */
const naive: Order = (stage, _stages, microbatches) =>
  range(0, microbatches).flatMap((m) => [act('F', stage, m), act('B', stage, m)])

/** Runs all forward passes, then all backward passes (Huang et al., GPipe, 2018). */
const gpipe: Order = (stage, _stages, microbatches) => [
  ...range(0, microbatches).map((m) => act('F', stage, m)),
  ...range(0, microbatches).map((m) => act('B', stage, m)),
]

/**
 * 1F1B (Narayanan et al., PipeDream-Flush, 2021). A stage first runs one forward pass per later stage.
 * Then it alternates between one forward and one backward pass, and finally runs the remaining backward
 * passes. The bubble is as large as in GPipe, but at most `stages - stage` micro-batches are in flight.
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
 * 1F1B with backward passes in halves (Qi et al., Zero Bubble Pipeline Parallelism, 2023, ZB-H1). The
 * gradient of the input is computed first and sent at once. The gradients of the weights follow up to
 * `rank` micro-batches later, when the rank would otherwise be idle. If F, I and W take equally long, the
 * bubble is a third of the 1F1B bubble. Every rank then has as many micro-batches in flight as there are
 * stages.
 *
 * With several chunks per rank, this is PyTorch's interleaved zero bubble schedule. The M micro-batches
 * go through the chunks in rounds of M / floor(M / ranks) micro-batches. If this number is not an
 * integer, there is only one round.
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
 * Interleaved 1F1B (Narayanan et al., Megatron-LM, 2021). Rank r has the stages r, r + ranks, r + 2 x
 * ranks and so on, its *chunks* of the model. Micro-batches go through the chunks in groups. A group has
 * as many micro-batches as there are ranks. After a warm-up, forward and backward passes alternate. With
 * v chunks per rank, the bubble is 1/v of the 1F1B bubble, and v times as many messages are sent.
 *
 * If the number of micro-batches is not a multiple of the number of ranks, all forward passes come first.
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
 * Breadth-first pipeline parallelism (Lamy-Poirier, 2022). Stages are assigned as in `interleaved`. All
 * micro-batches go forward through one chunk before the next chunk starts, as in GPipe. Backward passes
 * visit the chunks in reverse order. The bubble is the same as in `interleaved`, for any number of
 * micro-batches. However, the activations of all micro-batches and chunks are in memory at once.
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

const chunkedNames = ['interleaved', 'looped', 'interleaved-zb'] as const

/** Returns the number of stages per rank that the order `name` supports. */
export function stagesPerRank(name: unknown): 1 | 2 | 'any' {
  if ((chunkedNames as readonly unknown[]).includes(name)) return 'any'
  return name === 'zb-v' || name === 'dualpipe-v' ? 2 : 1
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, index) => from + index)
}

/**
 * Returns the order in which a rank's forward passes visit its chunks. In each round, `size`
 * micro-batches visit one chunk after the other.
 */
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
