import { act, type Action } from './actions.ts'

/**
 * Builds the action list of one rank for a V-shaped assignment of 2 x `ranks` stages. Rank r has
 * stage r (`first`) and stage 2 x ranks - 1 - r (`second`). So rank 0 has the first and the last
 * stage, and the last rank has the two middle stages.
 */
function createList(rank: number, ranks: number) {
  const stages = { first: rank, second: 2 * ranks - 1 - rank }
  const actions: Action[] = []
  const next = new Map<string, number>()
  /** Second halves of backward passes (`W`) that are not in the list yet. */
  const open: Action[] = []

  const count = (pass: 'F' | 'B', chunk: Chunk) => next.get(`${pass} ${chunk}`) ?? 0
  const add = (kind: 'F' | 'B' | 'I', chunk: Chunk) => {
    const pass = kind === 'F' ? 'F' : 'B'
    const action = act(kind, stages[chunk], count(pass, chunk))
    next.set(`${pass} ${chunk}`, action.microbatch + 1)
    actions.push(action)
    return action
  }
  return {
    actions,
    hasOpen: () => open.length > 0,
    /**
     * Returns the number of micro-batches in the list whose forward (or backward) pass goes through a
     * stage.
     */
    count,
    forward(chunk: Chunk) {
      add('F', chunk)
    },
    backward(chunk: Chunk) {
      add('B', chunk)
    },
    /** Adds the first half (`I`) of the stage's next backward pass. */
    input(chunk: Chunk) {
      open.push({ ...add('I', chunk), kind: 'W' })
    },
    /**
     * Adds the oldest second half (`W`) that is not in the list yet, of stage `chunk` if given. Does
     * nothing if there is none.
     */
    weights(chunk?: Chunk) {
      const stage = chunk && stages[chunk]
      const at = open.findIndex((each) => stage === undefined || each.stage === stage)
      if (at >= 0) actions.push(...open.splice(at, 1))
    },
  }
}

type Chunk = 'first' | 'second'

/**
 * The V-shaped zero bubble schedule ZB-V (Qi et al., Pipeline Parallelism with Controllable Memory,
 * 2024), in the same order as PyTorch's. All backward passes are in halves. If F, I and W take
 * equally long, ranks are idle only while the pipeline fills and drains. Every rank holds as many
 * activations as the first rank of 1F1B.
 */
export function zeroBubbleV(rank: number, ranks: number, microbatches: number): Action[] {
  // Plan at least enough micro-batches to fill the pipeline. Actions of surplus micro-batches are
  // removed at the end.
  const total = Math.max(2 * ranks - 1, microbatches)
  const list = createList(rank, ranks)
  const backward = (chunk: Chunk): void => {
    list.input(chunk)
    list.weights(chunk)
  }
  times(2 * (ranks - rank) - 1, () => {
    list.forward('first')
  })
  times(rank, () => {
    list.forward('second')
    list.forward('first')
  })
  times(ranks - rank, () => {
    list.forward('second')
    backward('second')
  })
  while (list.count('F', 'second') < total) {
    if (list.count('F', 'first') < total) list.forward('first')
    backward('first')
    list.forward('second')
    backward('second')
  }
  times(rank, () => {
    list.input('first')
    list.input('second')
  })
  times(ranks - rank, () => {
    list.input('first')
    list.weights('first')
  })
  times(rank, () => {
    list.weights('second')
  })
  while (list.hasOpen()) list.weights('first')
  return list.actions.filter(({ microbatch }) => microbatch < microbatches)
}

/**
 * The DualPipeV schedule (DeepSeek-AI, DualPipe and DualPipeV, 2025), in the same order as PyTorch's. In
 * the steady state, each rank pairs a forward pass of one stage with a backward pass of its other stage.
 * A GPU with two streams can overlap the passes of a pair; here they run one after the other.
 */
export function dualPipeV(rank: number, ranks: number, microbatches: number): Action[] {
  // Plan at least enough micro-batches to fill the pipeline. Actions of surplus micro-batches are
  // removed at the end.
  const total = Math.max(2 * ranks, microbatches)
  const list = createList(rank, ranks)
  const later = ranks - rank - 1
  times(2 * later, () => {
    list.forward('first')
  })
  times(rank + 1, () => {
    list.forward('first')
    list.forward('second')
  })
  times(later, () => {
    list.input('second')
    list.weights()
    list.forward('second')
  })
  times(total - 2 * ranks + rank + 1, () => {
    list.forward('first')
    list.backward('second')
    list.forward('second')
    list.backward('first')
  })
  times(later, () => {
    list.backward('second')
    list.forward('second')
    list.backward('first')
  })
  // Split the later half of the remaining backward passes into I and W, so that W can run while the
  // pipeline drains.
  const whole = rank + 1
  times(2 * (rank + 1), (index) => {
    const chunk = index % 2 === 0 ? 'second' : 'first'
    if (index < whole) list.backward(chunk)
    else list.input(chunk)
  })
  times(later, () => {
    list.weights()
    list.input('first')
  })
  while (list.hasOpen()) list.weights()
  return list.actions.filter(({ microbatch }) => microbatch < microbatches)
}

function times(count: number, run: (index: number) => void): void {
  for (let index = 0; index < count; index++) run(index)
}
