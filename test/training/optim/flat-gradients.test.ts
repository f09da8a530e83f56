import {
  Adam,
  flatten,
  loadBackend,
  recordModule,
  SGD,
  shardedMLP,
  sumInto,
  tf,
  writeTo,
  type Module,
  type Tensor,
} from '@tsrun/training'
import { partsOf } from '@tsrun/training/parts'

const model = (): Module => shardedMLP({ layers: 3, inputs: 6, hidden: 5, outputs: 4 }).slice(0, 3)

it('the flat layout places parameters in order and without gaps', () => {
  const layout = flatten([
    { name: 'a', shape: [2, 3] },
    { name: 'b', shape: [] },
    { name: 'c', shape: [4] },
  ])
  expect(layout.length).toBe(11)
  expect([...layout.slots]).toEqual([
    ['a', { shape: [2, 3], offset: 0, length: 6 }],
    ['b', { shape: [], offset: 6, length: 1 }],
    ['c', { shape: [4], offset: 7, length: 4 }],
  ])
  expect(() =>
    flatten([...new Array<{ name: string; shape: [] }>(2)].map(() => ({ name: 'a', shape: [] }))),
  ).toThrow(/two parameters named a/)
})

describe.each(['wasm', 'cpu'] as const)('gradients in a flat buffer on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it.each([
    ['SGD', () => new SGD({ learningRate: 0.1, momentum: 0.9 })],
    ['Adam', () => new Adam({ learningRate: 0.1 })],
  ])('give %s the same results as tensors do', (_, makeOptimizer) => {
    const [first, second] = [model(), model()]
    const layout = flatten(first.parameters)
    const parts = partsOf(layout, new Float32Array(layout.length))
    const optimizers = [makeOptimizer(), makeOptimizer()] as const
    const before = tf.memory()
    for (let step = 0; step < 3; step++) {
      const gradients = new Map<string, Tensor>()
      const x = tf.randomUniform([8, 6], -1, 1, 'float32', step + 1)
      const recording = recordModule(second, x, { needsInputGradient: false })
      const dy = tf.onesLike(recording.value)
      recording.backward(dy, sumInto(gradients))
      for (const it of [recording, dy, x]) it.dispose()
      for (const [name, gradient] of gradients) void writeTo(gradient, parts.get(name)!)
      optimizers[0].step(first.parameters, parts)
      optimizers[1].step(second.parameters, gradients)
    }
    for (const optimizer of optimizers) optimizer.dispose()
    expect(tf.memory()).toEqual(before)
    first.parameters.forEach(({ value }, i) => {
      const other = second.parameters[i]!.value
      expect(value.dataSync()).toEqual(other.dataSync())
      value.dispose()
      other.dispose()
    })
  })

  it('are refused if they have another size', () => {
    const parameter = { name: 'w', shape: [2, 3], value: tf.ones([2, 3]) }
    expect(() => {
      new SGD({ learningRate: 1 }).step([parameter], new Map([['w', new Float32Array(5)]]))
    }).toThrow(/gradient of w is an array of 5 values/)
    parameter.value.dispose()
  })
})
