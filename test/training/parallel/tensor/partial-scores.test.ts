import { GPT } from '@tsrun/models'
import {
  columnParallel,
  crossEntropy,
  disposeModule,
  loadBackend,
  parallelize,
  recordLoss,
  recordModule,
  shardedMLP,
  summedCrossEntropy,
  tf,
  vocabParallel,
  wholeModel,
  type Module,
  type Tensor,
} from '@tsrun/training'
import type { ProcessGroup } from '@tsrun/distributed'
import { failure } from '../support/failure.ts'
import { onEach } from '../support/on-each.ts'

beforeAll(() => loadBackend('wasm'))

const gpt = () => new GPT({ vocabulary: 12, block: 4, width: 8, heads: 2, layers: 1 })
const network = () => shardedMLP({ layers: 1, inputs: 4, outputs: 6 }).build()

const models: [string, (group: ProcessGroup) => Module, () => Tensor, number[]][] = [
  [
    'a head by tokens',
    (group) => parallelize(gpt(), { lm_head: vocabParallel() }, group),
    () => tf.zeros([2, 4], 'int32'),
    [2, 4],
  ],
  [
    'a last layer by columns',
    (group) => parallelize(network(), { 'layers.0': columnParallel() }, group),
    () => tf.ones([2, 4]),
    [2],
  ],
]

describe.each(models)('scores of %s', (_, build, inputs, shape) => {
  it('are refused by a loss that needs all classes, and leak no tensor', async () => {
    const before = tf.memory().numTensors
    const ranks = await onEach(2, (group) => {
      const model = build(group)
      const [x, labels] = [inputs(), tf.zeros(shape, 'int32')]
      const recording = recordModule(model, x, { needsInputGradient: false })
      const copy = tf.keep(tf.clone(recording.value))
      const calls = [
        () => recordLoss(crossEntropy, recording.value, labels),
        () => recordLoss(summedCrossEntropy, recording.value, labels),
        () => crossEntropy(recording.value, labels),
        () => recordLoss(crossEntropy, copy, labels),
      ]
      const errors = calls.map((call) => {
        try {
          call()
          return undefined
        } catch (error) {
          return error
        }
      })
      recording.dispose()
      tf.dispose([x, labels, copy])
      disposeModule(model)
      return errors
    })
    for (const error of ranks.flat()) {
      const message = /this rank's part of the classes; .* vocabParallelCrossEntropy\(group\)/
      expect(error).toEqual(failure('ERR_TSR_ARGUMENT', message))
    }
    expect(tf.memory().numTensors).toBe(before)
  })

  it('have no accuracy unless the loss counts correct answers', async () => {
    const total = Object.assign((scores: Tensor) => tf.sum(scores), { reduction: 'sum' } as const)
    const found = await onEach(2, async (group) => {
      const whole = wholeModel(build(group), { loss: total })
      const [x, labels] = [inputs(), tf.zeros(shape, 'int32')]
      const { accuracy } = await whole.evaluate({ size: 2, inputs: x, labels })
      tf.dispose([x, labels])
      whole.dispose()
      return accuracy
    })
    expect(found).toEqual([NaN, NaN])
  })

  it('cover all classes in a group of one rank', async () => {
    await onEach(1, (group) => {
      const model = build(group)
      const [x, labels] = [inputs(), tf.zeros(shape, 'int32')]
      const loss = tf.tidy(() => crossEntropy(model.forward(x), labels).dataSync()[0])
      expect(loss).toBeGreaterThan(0)
      tf.dispose([x, labels])
      disposeModule(model)
    })
  })
})
