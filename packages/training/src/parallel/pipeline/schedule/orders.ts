import { act, type Action, type ActionKind } from './actions.ts'

/**
 * Returns the actions of one rank in a schedule, in order. Each rank has `chunks` stages, which are
 * assigned round-robin. With one stage per rank, a stage has the number of its rank. In orders whose
 * names end in `-v`, rank r has the stages r and 2 x ranks - 1 - r.
 */
export type Order = (rank: number, ranks: number, microbatches: number, chunks: number) => Action[]

/** Runs one micro-batch at a time through the whole pipeline, as in naive model parallelism. */
const naive: Order = (stage, stages, microbatches) =>
  alternate(passesOf(1, stage, stages, microbatches, 1), 0)

/**
 * 1F1B (Narayanan et al., PipeDream-Flush, 2021). A stage first runs one forward pass per later stage.
 * Then it alternates between one forward and one backward pass, and finally runs the remaining backward
 * passes. The bubble is as large as in GPipe, but at most `stages - stage` micro-batches are in flight.
 */
const oneForwardOneBackward: Order = (stage, stages, microbatches) =>
  alternate(passesOf(1, stage, stages, microbatches, 1), stages - stage - 1)

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
  const { forwards, backwards } = passesOf(size, rank, ranks, microbatches, chunks)
  const halves = (kind: 'I' | 'W') => backwards.map((action): Action => ({ ...action, kind }))
  const weights = halves('W')
  const warmup = Math.min(ranks - rank - 1 + (chunks - 1) * size, forwards.length)
  return [
    ...forwards.slice(0, warmup),
    ...halves('I').flatMap((half, index) => [
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
  const passes = passesOf(ranks, rank, ranks, microbatches, chunks)
  const isWhole = microbatches % ranks === 0
  return alternate(passes, isWhole ? 2 * (ranks - rank - 1) + (chunks - 1) * ranks : Infinity)
}

/**
 * Breadth-first pipeline parallelism (Lamy-Poirier, 2022). Stages are assigned as in `interleaved`. All
 * micro-batches go forward through one chunk before the next chunk starts. Backward passes visit the
 * chunks in reverse order. The bubble is the same as in `interleaved`, for any number of micro-batches.
 * However, the activations of all micro-batches and chunks are in memory at once.
 *
 * With one chunk, this is GPipe (Huang et al., 2018): all forward passes, then all backward passes.
 */
const looped: Order = (rank, ranks, microbatches, chunks) =>
  alternate(passesOf(microbatches, rank, ranks, microbatches, chunks), Infinity)

export const orders = {
  naive,
  gpipe: looped,
  '1f1b': oneForwardOneBackward,
  'zb-h1': interleavedZeroBubble,
  interleaved,
  looped,
  'interleaved-zb': interleavedZeroBubble,
  'zb-v': zeroBubbleV,
  'dualpipe-v': dualPipeV,
} as const satisfies Record<string, Order>

const chunkedNames = ['interleaved', 'looped', 'interleaved-zb'] as const

export function stagesPerRank(name: unknown): 1 | 2 | 'any' {
  if ((chunkedNames as readonly unknown[]).includes(name)) return 'any'
  return name === 'zb-v' || name === 'dualpipe-v' ? 2 : 1
}

/**
 * Returns the passes of a rank. In each round, `size` micro-batches visit one chunk after the other:
 * forward passes from the first chunk on, backward passes from the last.
 */
function passesOf(size: number, rank: number, ranks: number, microbatches: number, chunks: number) {
  const forwards: Action[] = []
  const backwards: Action[] = []
  for (let first = 0; first < microbatches; first += size) {
    const end = Math.min(first + size, microbatches)
    for (let chunk = 0; chunk < chunks; chunk++) {
      for (let microbatch = first; microbatch < end; microbatch++) {
        forwards.push(act('F', chunk * ranks + rank, microbatch))
        backwards.push(act('B', (chunks - 1 - chunk) * ranks + rank, microbatch))
      }
    }
  }
  return { forwards, backwards }
}

/** Returns up to `warmup` forward passes, then forward and backward passes in turn, then the rest. */
function alternate({ forwards, backwards }: ReturnType<typeof passesOf>, warmup: number) {
  const first = forwards.slice(0, warmup)
  const steady = forwards.slice(warmup).flatMap((forward, i) => [forward, backwards[i]!])
  return [...first, ...steady, ...backwards.slice(forwards.length - first.length)]
}

/**
 * A part of a schedule: actions that a rank repeats `count` times, each for the next micro-batch. `1F` is a
 * forward pass of the rank's first stage, and `2I` the first half of a backward pass of its second stage.
 * `W` is the oldest second half of a backward pass, of either stage, that has not run yet.
 */
type Phase = readonly [count: number, actions: string]

/**
 * Builds the action list of one rank for a V-shaped assignment of 2 x `ranks` stages. Rank r has
 * stage r (the first) and stage 2 x ranks - 1 - r (the second). So rank 0 has the first and the last
 * stage, and the last rank has the two middle stages.
 *
 * @param phases - the parts of the schedule. Second halves of backward passes that no part lists come last.
 *   Parts may list surplus micro-batches, to fill the pipeline; their actions are removed
 */
function inPhases(rank: number, ranks: number, microbatches: number, phases: readonly Phase[]) {
  const stages = [rank, 2 * ranks - 1 - rank]
  const actions: Action[] = []
  const next = new Map<string, number>()
  /** Second halves of backward passes (`W`) that are not in the list yet. */
  const open: Action[] = []
  const add = (word: string) => {
    const kind = word.at(-1) as ActionKind
    const stage = stages[Number(word.slice(0, -1)) - 1]
    if (kind === 'W') {
      const at = open.findIndex((half) => stage === undefined || half.stage === stage)
      if (at >= 0) actions.push(...open.splice(at, 1))
      return
    }
    const pass = `${kind === 'F' ? 'forward' : 'backward'} ${stage!}`
    const microbatch = next.get(pass) ?? 0
    next.set(pass, microbatch + 1)
    actions.push(act(kind, stage!, microbatch))
    if (kind === 'I') open.push(act('W', stage!, microbatch))
  }
  for (const [count, words] of phases) {
    for (let i = 0; i < count; i++) words.split(' ').forEach(add)
  }
  return [...actions, ...open].filter(({ microbatch }) => microbatch < microbatches)
}

/**
 * The V-shaped zero bubble schedule ZB-V (Qi et al., Pipeline Parallelism with Controllable Memory,
 * 2024), in the same order as PyTorch's. All backward passes are in halves. If F, I and W take
 * equally long, ranks are idle only while the pipeline fills and drains. Every rank holds as many
 * activations as the first rank of 1F1B.
 */
function zeroBubbleV(rank: number, ranks: number, microbatches: number) {
  const later = ranks - rank - 1
  const total = Math.max(2 * ranks - 1, microbatches)
  return inPhases(rank, ranks, microbatches, [
    [2 * later + 1, '1F'],
    [rank, '2F 1F'],
    [later + 1, '2F 2I 2W'],
    [total - 2 * ranks + rank + 1, '1F 1I 1W 2F 2I 2W'],
    [later, '1I 1W 2F 2I 2W'],
    [rank, '1I 2I'],
    [later + 1, '1I 1W'],
    [rank, '2W'],
  ])
}

/**
 * The DualPipeV schedule (DeepSeek-AI, DualPipe and DualPipeV, 2025), in the same order as PyTorch's. In
 * the steady state, each rank pairs a forward pass of one stage with a backward pass of its other stage.
 * A GPU with two streams can overlap the passes of a pair; here they run one after the other. While the
 * pipeline drains, backward passes run in halves.
 */
function dualPipeV(rank: number, ranks: number, microbatches: number) {
  const later = ranks - rank - 1
  const total = Math.max(2 * ranks, microbatches)
  const pairs = Math.floor((rank + 1) / 2)
  return inPhases(rank, ranks, microbatches, [
    [2 * later, '1F'],
    [rank + 1, '1F 2F'],
    [later, '2I W 2F'],
    [total - 2 * ranks + rank + 1, '1F 2B 2F 1B'],
    [later, '2B 2F 1B'],
    [pairs, '2B 1B'],
    [(rank + 1) % 2, '2B 1I'],
    [pairs, '2I 1I'],
    [later, 'W 1I'],
  ])
}
