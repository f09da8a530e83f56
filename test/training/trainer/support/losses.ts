import { types } from 'node:util'
import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  columnParallel,
  crossEntropyWith,
  loadBackend,
  lossOf,
  recordModule,
  rowParallel,
  SGD,
  shardedMLP,
  sumInto,
  tf,
  trainer,
  type Loss,
  type MeshShape,
  type Tensor,
  type TrainerOptions,
} from '@tsrun/training'

export const [STEPS, EXAMPLES, WIDTH, OUTPUTS] = [3, 8, 6, 4]
export const recipe = shardedMLP({ layers: 4, inputs: WIDTH, hidden: 8, outputs: OUTPUTS, seed: 5 })
const plan = Object.fromEntries(
  [0, 1, 2, 3].map((i) => [`layers.${i}`, i % 2 === 0 ? columnParallel() : rowParallel()]),
)

interface Labels {
  readonly values: Float32Array | Int32Array
  /** Of one example. */
  readonly shape: readonly number[]
}

interface Problem {
  readonly loss: Loss
  readonly labels: (step: number) => Labels
  /** The loss of the whole batch, by definition. */
  readonly whole: (outputs: Tensor, labels: Tensor) => Tensor
}

const classes = (isIgnored: (example: number, step: number) => boolean) => (step: number) => ({
  values: Int32Array.from({ length: EXAMPLES }, (_, i) =>
    isIgnored(i, step) ? -100 : (i * i + step) % OUTPUTS,
  ),
  shape: [],
})

/** As torch's F.cross_entropy(ignore_index=-100, label_smoothing), and 0 where that is NaN. */
const meanOfLabels =
  (smoothing = 0) =>
  (scores: Tensor, labels: Tensor): Tensor => {
    const counts = tf.cast(tf.greaterEqual(labels, 0), 'float32')
    const right = tf.oneHot(tf.cast(tf.maximum(labels, 0), 'int32'), OUTPUTS, 1, 0, 'float32')
    const target = tf.add(tf.mul(right, 1 - smoothing), smoothing / OUTPUTS)
    const each = tf.neg(tf.sum(tf.mul(target, tf.logSoftmax(scores)), -1))
    return tf.div(tf.sum(tf.mul(each, counts)), tf.maximum(tf.sum(counts), 1))
  }

/** Targets, and a weight for each; some are 0. */
const weighted = (step: number): Labels => ({
  values: Float32Array.from({ length: EXAMPLES * OUTPUTS * 2 }, (_, i) =>
    i % 2 === 0 ? Math.sin(i + step) : i % 5 === 0 || i < 20 ? 0 : (i % 7) / 4,
  ),
  shape: [OUTPUTS, 2],
})
const parted = (labels: Tensor): [target: Tensor, weight: Tensor] => {
  const [target, weight] = tf.unstack(labels, -1)
  return [target!, weight!]
}
const squares = (outputs: Tensor, labels: Tensor): Tensor => {
  const [target, weight] = parted(labels)
  return tf.sum(tf.mul(tf.squaredDifference(outputs, target), weight))
}
const weights = (labels: Tensor): Tensor => tf.sum(parted(labels)[1])
const countWeights = async (labels: Tensor): Promise<number> => {
  const sum = tf.tidy(() => weights(labels))
  const [count] = await sum.data()
  sum.dispose()
  return count!
}
const meanOfWeights = (outputs: Tensor, labels: Tensor): Tensor =>
  tf.div(squares(outputs, labels), weights(labels))

const targets = (isZero: (example: number, step: number) => boolean) => (step: number) => ({
  values: Float32Array.from({ length: EXAMPLES * OUTPUTS }, (_, i) =>
    isZero(Math.floor(i / OUTPUTS), step) ? NaN : Math.cos(i + step),
  ),
  shape: [OUTPUTS],
})
/** Rows without a target have the loss 0. */
const sumOfRows = (outputs: Tensor, labels: Tensor): Tensor => {
  const isGiven = tf.logicalNot(tf.isNaN(labels))
  const difference = tf.sub(outputs, tf.where(isGiven, labels, tf.zerosLike(labels)))
  return tf.sum(tf.mul(tf.square(difference), tf.cast(isGiven, 'float32')))
}
const meanOfRows = (outputs: Tensor, labels: Tensor): Tensor =>
  tf.div(sumOfRows(outputs, labels), labels.shape[0])

/** Sums that no float16 can hold, of means that it can. In the first step nothing counts. */
export const heavy: Problem = {
  loss: lossOf(squares, { count: countWeights }),
  labels: (step) => {
    const { values, shape } = weighted(step)
    const times = step === 0 ? 0 : 1e6
    return { values: values.map((value, i) => (i % 2 === 0 ? value : times * value)), shape }
  },
  whole: (outputs, labels) => tf.div(squares(outputs, labels), tf.maximum(weights(labels), 1)),
}

const ignoring = crossEntropyWith({ ignoreIndex: -100 })

const problems: Record<string, Problem> = {
  'some labels ignored': {
    loss: ignoring,
    labels: classes((i, step) => (i * 5 + step) % 8 > 2),
    whole: meanOfLabels(),
  },
  'the labels of half a batch ignored': {
    loss: ignoring,
    labels: classes((i) => i < EXAMPLES / 2),
    whole: meanOfLabels(),
  },
  'all labels ignored': { loss: ignoring, labels: classes(() => true), whole: meanOfLabels() },
  'smoothed labels, some ignored': {
    loss: crossEntropyWith({ ignoreIndex: -100, labelSmoothing: 0.2 }),
    labels: classes((i) => i % 8 < 3),
    whole: meanOfLabels(0.2),
  },
  'a sum with a count': {
    loss: lossOf(squares, { count: countWeights }),
    labels: weighted,
    whole: meanOfWeights,
  },
  'a mean with a count': {
    loss: Object.assign((y: Tensor, labels: Tensor) => meanOfWeights(y, labels), {
      count: countWeights,
    }),
    labels: weighted,
    whole: meanOfWeights,
  },
  'a mean that does not say so': {
    loss: (y, labels) => meanOfRows(y, labels),
    labels: targets(() => false),
    whole: meanOfRows,
  },
  'a sum that does not say so, 0 for half of the first batch': {
    loss: (y, labels) => sumOfRows(y, labels),
    labels: targets((i, step) => step === 0 && i < EXAMPLES / 2),
    whole: meanOfRows,
  },
  'a sum that does not say so, 0 for the whole first batch': {
    loss: (y, labels) => sumOfRows(y, labels),
    labels: targets((_, step) => step === 0),
    whole: meanOfRows,
  },
}

export const inputsAt = (step: number): Float32Array =>
  Float32Array.from({ length: EXAMPLES * WIDTH }, (_, i) => Math.sin(31 * step + i))

interface Seen {
  readonly losses: number[]
  readonly accuracy: number
}

/** In a loop that is written by hand. */
function alone({ labels, whole }: Problem): Seen {
  const model = recipe.build()
  const optimizer = new SGD({ learningRate: 0.2 })
  const tensors = (step: number): [Tensor, Tensor] => {
    const { values, shape } = labels(step)
    const dtype = types.isInt32Array(values) ? 'int32' : 'float32'
    return [
      tf.tensor(inputsAt(step), [EXAMPLES, WIDTH]),
      tf.tensor(values, [EXAMPLES, ...shape], dtype),
    ]
  }
  const losses: number[] = []
  for (let step = 0; step < STEPS; step++) {
    const [x, y] = tensors(step)
    const outputs = recordModule(model, x, { needsInputGradient: false })
    losses.push(tf.tidy(() => whole(outputs.value, y).dataSync()[0]!))
    const dy = tf.tidy(() => tf.grad((scores: Tensor) => whole(scores, y))(outputs.value))
    const gradients = new Map<string, Tensor>()
    outputs.backward(dy, sumInto(gradients))
    optimizer.step(model.parameters, gradients)
  }
  const [x, y] = tensors(STEPS)
  const scores = model.forward(x)
  losses.push(whole(scores, y).dataSync()[0]!)
  if (y.dtype !== 'int32') return { losses, accuracy: NaN }
  const best = tf.argMax(scores, -1).dataSync()
  const counting = [...y.dataSync()].flatMap((label, i) => (label < 0 ? [] : [[label, best[i]!]]))
  const right = counting.filter(([label, found]) => label === found).length
  return { losses, accuracy: right / counting.length }
}

async function together({ loss, labels }: Problem, shape: MeshShape, options: TrainerOptions) {
  const size = Object.values(shape).reduce((product, axis) => product * axis, 1)
  return await runWorld({ size, seed: 1 }, async (group): Promise<Seen> => {
    const sizes: Record<string, number> = { dp: 1, ...shape }
    const mesh = await initDeviceMesh(sizes, group)
    const run = await trainer(recipe, {
      ...{ mesh, loss, optimizer: new SGD({ learningRate: 0.2 }) },
      ...(shape.tp !== undefined && { plan }),
      ...options,
    })
    const [index, count] = run.share
    const rows = EXAMPLES / count
    const batch = (step: number) => {
      const { values, shape } = labels(step)
      const each = values.length / EXAMPLES
      const own = values.slice(index * rows * each, (index + 1) * rows * each)
      const dtype = types.isInt32Array(own) ? 'int32' : 'float32'
      return {
        size: rows,
        inputs: inputsAt(step).slice(index * rows * WIDTH, (index + 1) * rows * WIDTH),
        labels: () => tf.tensor(own, [rows, ...shape], dtype),
      }
    }
    const losses: number[] = []
    for (let step = 0; step < STEPS; step++) {
      const { loss, examples } = await run.step(batch(step))
      expect(examples).toBe(EXAMPLES)
      losses.push(loss)
    }
    const evaluated = await run.evaluate(batch(STEPS))
    losses.push(evaluated.loss)
    run.dispose()
    return { losses, accuracy: evaluated.accuracy }
  })
}

const layouts: readonly (readonly [MeshShape, TrainerOptions])[] = [
  [{}, {}],
  [{}, { accumulate: 2 }],
  [{}, { accumulate: 8, recompute: true }],
  [{ dp: 2 }, {}],
  [{ dp: 4 }, { accumulate: 2 }],
  [{ dp: 2 }, { zero: 1 }],
  [{ dp: 4 }, { zero: 2 }],
  [{ dp: 2 }, { zero: 3, accumulate: 2 }],
  [{ dp: 2, shard: 2 }, {}],
  [{ pp: 2 }, { microbatches: 4 }],
  [{ pp: 2 }, { schedule: 'zb-v', microbatches: 4 }],
  [{ pp: 2 }, { schedule: 'zb-h1', microbatches: 8, recompute: true }],
  [{ dp: 2, pp: 2 }, { microbatches: 2 }],
  [
    { dp: 2, pp: 2 },
    { zero: 2, microbatches: 2 },
  ],
  [{ tp: 2 }, { accumulate: 2 }],
]

/** Whether to train a problem in a layout, by their places in the lists. */
type Choice = (problem: number, layout: number) => boolean

/** Each problem in a fifth of the layouts, and each layout with a fifth of the problems. */
export const isUsual: Choice = (problem, layout) => (problem + layout) % 5 === 0

/** Holds the losses and the accuracy in each layout against those of a loop that is written by hand. */
export function describeLosses(isChosen: Choice): void {
  beforeAll(() => loadBackend('wasm'))
  const layoutsOf = (problem: number) => layouts.filter((_, i) => isChosen(problem, i))
  const all = Object.entries(problems).map(([name, problem], i) => ({ name, problem, i }))

  describe.each(all)('a loss ($name)', ({ problem, i }) => {
    let expected: Seen
    beforeAll(() => {
      expected = alone(problem)
    })

    it.each(layoutsOf(i))('trains and evaluates as in one pass: %j %j', async (shape, options) => {
      for (const { losses, accuracy } of await together(problem, shape, options)) {
        losses.forEach((loss, step) => {
          expect(loss).toBeCloseTo(expected.losses[step]!, 5)
        })
        expect(accuracy.toFixed(6)).toBe(expected.accuracy.toFixed(6))
      }
    })
  })

  it.each(layoutsOf(all.length))(
    'a float16 wire carries sums over many labels: %j %j',
    async (shape, options) => {
      const expected = alone(heavy)
      for (const { losses } of await together(heavy, shape, { ...options, wire: 'float16' })) {
        losses.forEach((loss, step) => {
          expect(loss).toBeCloseTo(expected.losses[step]!, 3)
        })
      }
    },
  )
}
