import { disposeModule, inPass, loadBackend, record, sumInto, BatchNorm } from '@tsrun/training'
import { SyncBatchNorm, tf } from '@tsrun/training'
import type { Tensor } from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { groupOfOne } from '../support/group-of-one.ts'

const [ROWS, CHANNELS] = [6, 3]
const training = { training: true, step: 0, replicas: [groupOfOne] }
const values = (seed: number, length: number): number[] =>
  Array.from({ length }, (_, i) => Math.fround(Math.sin(seed + 12.9898 * i) + (i % CHANNELS)))

/** In float64, by definition: the outputs, and by differences of the loss their gradients. */
function normalized(x: readonly number[], weight: readonly number[], bias: readonly number[]) {
  return x.map((value, i) => {
    const channel = x.filter((_, j) => j % CHANNELS === i % CHANNELS)
    const mean = channel.reduce((a, b) => a + b) / ROWS
    const variance = channel.reduce((sum, each) => sum + (each - mean) ** 2, 0) / ROWS
    return (
      ((value - mean) / Math.sqrt(variance + 1e-5)) * weight[i % CHANNELS]! + bias[i % CHANNELS]!
    )
  })
}

/** d sum(slopes y) / d variable, by central differences. */
function slopeOf(lossOf: (variable: number[]) => number, variable: readonly number[]): number[] {
  const step = 1e-5
  return variable.map((_, i) => {
    const at = (delta: number) => lossOf(variable.map((v, j) => (i === j ? v + delta : v)))
    return (at(step) - at(-step)) / (2 * step)
  })
}

function expectClose(tensor: Tensor, expected: readonly number[]): void {
  expect(tensor.size).toBe(expected.length)
  for (const [i, value] of tensor.dataSync().entries()) expect(value).toBeCloseTo(expected[i]!, 4)
}

describe.each(['wasm', 'cpu'] as const)('a BatchNorm of one rank on %s', (backend) => {
  beforeAll(async () => {
    await loadBackend(backend)
  })

  it.each([0, 999])(
    'keeps a small variance beside a large mean, with the other value in row %i',
    (other) => {
      const norm = new BatchNorm({ name: 'n', channels: 1, momentum: 1 })
      const x = tf.tensor(
        Array.from({ length: 1000 }, (_, i) => 1e7 + (i === other ? 1 : 0)),
        [1000, 1],
      )
      const { value } = record((h) => norm.forward(h), x, norm.parameters, {
        needsInputGradient: false,
      })
      expect(norm.buffers[1].value.dataSync()[0]).toBeCloseTo(0.001, 8)
      expect(value.dataSync()[other]).toBeCloseTo(0.999 / Math.sqrt(0.000999 + 1e-5), 3)
    },
  )

  it('normalizes by the statistics of the batch, forward and backward', () => {
    const before = tf.memory().numTensors
    const norm = new BatchNorm({ name: 'n', channels: CHANNELS })
    const [weight, bias] = [
      [1.5, -2, 0.5],
      [0.1, 0.2, 0.3],
    ]
    for (const [i, given] of [weight, bias].entries()) {
      norm.parameters[i]!.value.dispose()
      norm.parameters[i]!.value = tf.tensor(given)
    }
    const [x, slopes] = [values(1, ROWS * CHANNELS), values(2, ROWS * CHANNELS)]
    const [input, dy] = [tf.tensor(x, [ROWS, CHANNELS]), tf.tensor(slopes, [ROWS, CHANNELS])]
    const recording = inPass(training, () =>
      record((h) => norm.forward(h), input, norm.parameters, { needsInputGradient: true }),
    )
    expectClose(recording.value, normalized(x, weight, bias))
    const gradients = new Map<string, Tensor>()
    const dx = recording.backward(dy, sumInto(gradients))!
    const loss = (a: number[], b = weight, c = bias): number =>
      normalized(a, b, c).reduce((sum, y, i) => sum + y * slopes[i]!, 0)
    expectClose(dx, slopeOf(loss, x))
    expectClose(
      gradients.get('n.weight')!,
      slopeOf((b) => loss(x, b), weight),
    )
    expectClose(
      gradients.get('n.bias')!,
      slopeOf((c) => loss(x, weight, c), bias),
    )

    recording.dispose()
    tf.dispose([input, dy, dx, ...gradients.values()])
    disposeModule(norm)
    for (const { value } of norm.buffers) value.dispose()
    expect(tf.memory().numTensors).toBe(before)
  })

  it('keeps running statistics, and uses them in evaluation', () => {
    const norm = new BatchNorm({ name: 'n', channels: 1, momentum: 0.5 })
    const x = tf.tensor([1, 2, 3, 6], [4, 1])
    inPass(training, () => norm.forward(x)).dispose()
    const [mean, variance] = norm.buffers
    expectClose(mean.value, [1.5]) // (0 + 3) / 2
    expectClose(variance.value, [(1 + 14 / 3) / 2]) // torch: the unbiased variance is 14 / 3
    const y = norm.forward(x)
    expectClose(
      y,
      [1, 2, 3, 6].map((value) => (value - 1.5) / Math.sqrt(17 / 6 + 1e-5)),
    )
    expectClose(mean.value, [1.5])
    const taught = inPass(training, () => norm.forward(x))
    expectClose(mean.value, [2.25])
    expectClose(tf.mean(taught), [0])
    tf.dispose([x, y, taught])
  })
})

it.each([{ channels: 0 }, { eps: 1 }])('BatchNorm refuses %j', (wrong) => {
  const options = { name: 'n', channels: 2, ...wrong }
  expect(() => new BatchNorm(options)).toThrow(failure('ERR_TSR_ARGUMENT'))
})

it('BatchNorm is also exported as SyncBatchNorm, its name in PyTorch', () => {
  expect(SyncBatchNorm).toBe(BatchNorm)
})
