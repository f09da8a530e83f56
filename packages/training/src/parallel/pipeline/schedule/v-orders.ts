import { act, type Action, type ActionKind } from './actions.ts'

/**
 * A part of a schedule: actions that a rank repeats `count` times, each for the next micro-batch. `1F` is a
 * forward pass of the rank's first stage, `2I` the first half of a backward pass of its second stage, and so
 * on. `W` is the oldest second half of either stage that has not run yet.
 */
type Phase = readonly [count: number, actions: string]

/**
 * Builds the action list of one rank for a V-shaped assignment of 2 x `ranks` stages. Rank r has
 * stage r (the first) and stage 2 x ranks - 1 - r (the second). So rank 0 has the first and the last
 * stage, and the last rank has the two middle stages.
 *
 * @param phases - second halves of backward passes that they leave out come last. They may have surplus
 *   micro-batches, to fill the pipeline; the actions of these are removed
 */
function inPhases(
  rank: number,
  ranks: number,
  microbatches: number,
  phases: readonly Phase[],
): Action[] {
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
export function zeroBubbleV(rank: number, ranks: number, microbatches: number): Action[] {
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
export function dualPipeV(rank: number, ranks: number, microbatches: number): Action[] {
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
