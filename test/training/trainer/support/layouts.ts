import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import { gpt } from '@tsrun/models'
import {
  Adam,
  columnParallel,
  crossEntropy,
  loadBackend,
  recordLoss,
  recordModule,
  rowParallel,
  shardedMLP,
  sumInto,
  textBatch,
  tf,
  trainer,
  type MeshShape,
  type Module,
  type Tensor,
  type TrainerOptions,
} from '@tsrun/training'

const STEPS = 4
const EXAMPLES = 8
const WIDTH = 6
const CLASSES = 4

interface Problem {
  readonly recipe: ReturnType<typeof shardedMLP> | ReturnType<typeof gpt>
  readonly plan?: TrainerOptions['plan']
  /** The examples [from, to) of a step. */
  batch(
    step: number,
    from: number,
    to: number,
  ): { size: number; inputs: () => Tensor; labels: () => Tensor }
}

const mlp: Problem = {
  recipe: shardedMLP({ layers: 4, inputs: WIDTH, hidden: 8, outputs: CLASSES, seed: 5 }),
  plan: Object.fromEntries(
    [0, 1, 2, 3].map((i) => [`layers.${i}`, i % 2 === 0 ? columnParallel() : rowParallel()]),
  ),
  batch: (step, from, to) => ({
    size: to - from,
    inputs: () =>
      tf.keep(
        tf.tensor2d(
          Float32Array.from({ length: (to - from) * WIDTH }, (_, i) =>
            Math.sin(31 * step + from * WIDTH + i),
          ),
          [to - from, WIDTH],
        ),
      ),
    labels: () =>
      tf.keep(
        tf.tensor1d(
          Int32Array.from({ length: to - from }, (_, i) => (step + from + i) % CLASSES),
          'int32',
        ),
      ),
  }),
}

const text = {
  tokens: Uint8Array.from({ length: 400 }, (_, i) => (i * i + (i >> 3)) % 17),
  vocabulary: 17,
}
export const BLOCK = 8

export const language: Problem = {
  recipe: gpt({ vocabulary: 17, block: BLOCK, layers: 2, heads: 2, width: 8, seed: 3 }),
  batch: (step, from, to) => {
    const share = [from / (to - from), EXAMPLES / (to - from)] as const
    return textBatch(text, step, { batch: EXAMPLES, block: BLOCK, share })
  },
}

/** The losses of the loop that is written by hand, in a single process. */
export function alone(problem: Problem): number[] {
  const model: Module = problem.recipe.build()
  const optimizer = new Adam({ learningRate: 0.01 })
  const one = tf.scalar(1)
  const losses = Array.from({ length: STEPS }, (_, step) => {
    const { inputs, labels } = problem.batch(step, 0, EXAMPLES)
    const [x, y] = [inputs(), labels()]
    const outputs = recordModule(model, x, { needsInputGradient: false })
    const loss = recordLoss(crossEntropy, outputs.value, y)
    const gradients = new Map<string, Tensor>()
    const dy = loss.backward(one, () => undefined)!
    outputs.backward(dy, sumInto(gradients))
    optimizer.step(model.parameters, gradients)
    const [value] = loss.value.dataSync()
    outputs.dispose()
    loss.dispose()
    tf.dispose([x, y, dy])
    return value!
  })
  const evaluated = problem.batch(STEPS, 0, EXAMPLES)
  const seen = problem.batch(0, 0, 2)
  tf.tidy(() => {
    const read = (tensor: Tensor) => [...tensor.dataSync()]
    const [x, y] = [evaluated.inputs(), evaluated.labels()]
    losses.push(...read(crossEntropy(model.forward(x), y)))
    const inputs = seen.inputs()
    losses.push(...read(model.forward(inputs)))
    tf.dispose([x, y, inputs])
  })
  optimizer.dispose()
  return losses
}

type Layout = readonly [name: string, shape: MeshShape, options?: TrainerOptions | undefined]

const layouts: readonly Layout[] = [
  ['one process', {}],
  ['accumulation', {}, { accumulate: 4 }],
  ['recomputation', {}, { recompute: true }],
  ['2 replicas', { dp: 2 }],
  ['4 replicas', { dp: -1, pp: 1 }],
  ['4 replicas with accumulation', { dp: 4 }, { accumulate: 2 }],
  ['ZeRO 1', { dp: 2 }, { zero: 1 }],
  ['ZeRO 2', { dp: 4 }, { zero: 2 }],
  ['ZeRO 3', { dp: 2 }, { zero: 3 }],
  ['ZeRO 3 with accumulation', { dp: 2 }, { zero: 3, accumulate: 2 }],
  ['replicas of shards', { dp: 2, shard: 2 }],
  ['a pipeline', { pp: 2 }, { microbatches: 4 }],
  ['a pipeline, zero bubble', { pp: 2 }, { schedule: 'zb-h1', microbatches: 2 }],
  ['replicas of a pipeline', { pp: 2, dp: -1 }, { microbatches: 2 }],
  ['a pipeline with ZeRO 2', { pp: 2, dp: 2 }, { zero: 2, microbatches: 2 }],
  ['shared layers', { tp: 2 }],
  ['replicas of shared layers', { tp: 2, dp: 2 }],
]

const ranksOf = (shape: MeshShape): number => {
  const product = Object.values(shape).reduce((all, size) => all * Math.abs(size), 1)
  return Object.values(shape).includes(-1) ? 4 : product
}

export async function together(problem: Problem, [, shape, options]: Layout): Promise<number[][]> {
  return await runWorld({ size: ranksOf(shape), seed: 1 }, async (group) => {
    const sizes = Object.fromEntries(
      Object.entries(shape).map(([axis, size]) => {
        const others = Object.values(shape).reduce((all, each) => all * Math.abs(each), 1)
        return [axis, size === -1 ? group.size / others : size]
      }),
    )
    const mesh = await initDeviceMesh(
      sizes['dp'] === undefined ? { dp: 1, ...sizes } : sizes,
      group,
    )
    const optimizer = new Adam({ learningRate: 0.01 })
    const run = await trainer(problem.recipe, {
      ...{ mesh, optimizer, clip: 1e6 },
      ...((shape.tp ?? 1) > 1 && { plan: problem.plan! }),
      ...options,
    })
    const [index, count] = run.share
    const rows = EXAMPLES / count
    const losses: number[] = []
    /** Of all ranks of this process, which are all between the same two steps. */
    const tensors = async (): Promise<number> => {
      await group.barrier()
      const { numTensors } = tf.memory()
      await group.barrier()
      return numTensors
    }
    let first = 0
    for (let step = 0; step < STEPS; step++) {
      if (step === 1) first = await tensors()
      const batch = problem.batch(step, index * rows, (index + 1) * rows)
      const { loss, norm, examples } = await run.step(batch)
      expect(norm).toBeGreaterThan(0)
      expect(examples).toBe(EXAMPLES)
      losses.push(loss)
    }
    const last = problem.batch(STEPS, index * rows, (index + 1) * rows)
    losses.push((await run.evaluate(last)).loss)
    // Without plan, no rank has parts of the scores.
    const x = problem.batch(0, 0, 2).inputs()
    const scores = await run.predict(x)
    losses.push(...scores.dataSync())
    tf.dispose([x, scores])
    expect(await tensors()).toBe(first)
    run.dispose()
    optimizer.dispose()
    return losses
  })
}

// Layers of a GPT that ranks share, and parts of sequences, block inside passes, which the ranks of one
// process cannot: scripts/parity trains these in processes of their own.
const ofGpt = layouts.filter(([, { tp = 1 }]) => tp === 1)

/** Whether to train a problem in a layout, by their places in the lists. */
type Choice = (problem: number, layout: number) => boolean

/** The MLP in every second layout, and the GPT in the others. */
export const isUsual: Choice = (problem, layout) => (problem + layout) % 2 === 0

/** Holds the losses and the scores in each layout against those of a loop that is written by hand. */
export function describeLayouts(isChosen: Choice): void {
  beforeAll(() => loadBackend('wasm'))

  describe.each(
    [
      { name: 'an MLP', problem: mlp, all: layouts },
      { name: 'a GPT', problem: language, all: ofGpt },
    ].map((each, i) => ({ ...each, all: each.all.filter((_, layout) => isChosen(i, layout)) })),
  )('a trainer of $name', ({ problem, all }) => {
    let expected: number[]
    beforeAll(() => {
      expected = alone(problem)
    })

    it.each(all)('trains as in a single process, and leaks no tensor: %s', async (...layout) => {
      const before = tf.memory().numTensors
      const ranks = await together(problem, layout as unknown as Layout)
      for (const losses of ranks) {
        expect(losses).toEqual(ranks[0])
        losses.forEach((loss, step) => {
          expect(Math.abs(loss - expected[step]!)).toBeLessThan(2e-5)
        })
      }
      expect(tf.memory().numTensors).toBe(before)
    })
  })
}
