import { act, type Action } from './actions.ts'

/**
 * The two stages of a rank in a V of 2 x `ranks` stages: going down (`first`: rank r has stage r) and back
 * up (`second`). The first and the last stage, with the loss, are both on rank 0, and the two stages of
 * the last rank follow each other.
 */
class VList {
  readonly actions: Action[] = []
  readonly #stages: { readonly first: number; readonly second: number }
  readonly #next = new Map<string, number>()
  /** Backward passes whose second half is still to come. */
  readonly #open: Action[] = []

  constructor(rank: number, ranks: number) {
    this.#stages = { first: rank, second: 2 * ranks - 1 - rank }
  }

  get hasOpen(): boolean {
    return this.#open.length > 0
  }

  /** How many micro-batches have gone forward, or backward, through one of the stages. */
  count(pass: 'F' | 'B', chunk: Chunk): number {
    return this.#next.get(`${pass} ${chunk}`) ?? 0
  }

  forward(chunk: Chunk): void {
    this.actions.push(act('F', this.#stages[chunk], this.#take('F', chunk)))
  }

  /** A whole backward pass. */
  backward(chunk: Chunk): void {
    this.actions.push(act('B', this.#stages[chunk], this.#take('B', chunk)))
  }

  /** The first half of a backward pass. */
  input(chunk: Chunk): void {
    const half = act('I', this.#stages[chunk], this.#take('B', chunk))
    this.actions.push(half)
    this.#open.push({ ...half, kind: 'W' })
  }

  /** The second half that has waited longest, of `chunk` if it is given; nothing where none waits. */
  weights(chunk?: Chunk): void {
    const stage = chunk === undefined ? undefined : this.#stages[chunk]
    const at = this.#open.findIndex((each) => stage === undefined || each.stage === stage)
    if (at >= 0) this.actions.push(...this.#open.splice(at, 1))
  }

  #take(pass: 'F' | 'B', chunk: Chunk): number {
    const microbatch = this.count(pass, chunk)
    this.#next.set(`${pass} ${chunk}`, microbatch + 1)
    return microbatch
  }
}

type Chunk = 'first' | 'second'

/**
 * Zero bubble in a V (Qi et al., Pipeline Parallelism with Controllable Memory, 2024, ZB-V; the same order
 * as PyTorch's): all backward passes are in halves. If F, I and W take equally long, the only bubble is
 * that of filling and draining between neighbours, with the activations of 1F1B's first rank on every
 * rank.
 */
export function zeroBubbleV(rank: number, ranks: number, microbatches: number): Action[] {
  // Fewer would not fill the pipeline: those that are not there are left out at the end.
  const total = Math.max(2 * ranks - 1, microbatches)
  const list = new VList(rank, ranks)
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
  while (list.hasOpen) list.weights('first')
  return list.actions.filter(({ microbatch }) => microbatch < microbatches)
}

/**
 * DualPipe, cut in half to a V (DeepSeek-AI, DualPipe and DualPipeV, 2025; the same order as PyTorch's). In
 * the steady state each rank has pairs of a forward pass through one of its stages and a backward pass
 * through the other, which hardware with two streams computes and sends at the same time. Here a rank has
 * one stream, and runs the two of a pair one after the other.
 */
export function dualPipeV(rank: number, ranks: number, microbatches: number): Action[] {
  // Fewer would not fill the pipeline: those that are not there are left out at the end.
  const total = Math.max(2 * ranks, microbatches)
  const list = new VList(rank, ranks)
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
  // The second half of the remaining backward passes is cut, so that their halves fill the drain.
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
  while (list.hasOpen) list.weights()
  return list.actions.filter(({ microbatch }) => microbatch < microbatches)
}

function times(count: number, run: (index: number) => void): void {
  for (let index = 0; index < count; index++) run(index)
}
