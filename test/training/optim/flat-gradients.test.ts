import { runWorld } from '@tsrun/distributed'
import {
  Adam,
  copyCounts,
  flatten,
  gatherGradients,
  loadBackend,
  recordModule,
  SGD,
  shardedMLP,
  sumInto,
  tf,
  type GradientListener,
  type Module,
  type Parameter,
  type Tensor,
} from '@tsrun/training'

const model = (): Module => shardedMLP({ layers: 3, inputs: 6, hidden: 5, outputs: 4 }).slice(0, 3)

/** Runs a model forward and backward over `count` micro-batches of fixed examples. */
function runPasses(module: Module, count: number, listener: GradientListener): void {
  for (let i = 0; i < count; i++) {
    const x = tf.randomUniform([8, 6], -1, 1, 'float32', i + 1)
    const recording = recordModule(module, x, { needsInputGradient: false })
    const dy = tf.onesLike(recording.value)
    recording.backward(dy, listener)
    for (const it of [recording, dy, x]) it.dispose()
  }
}

function fill({ length }: { readonly length: number }): Float32Array {
  return new Float32Array(length).fill(NaN)
}

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

describe.each(['wasm', 'cpu'] as const)('gathered gradients on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it('are the sums over the micro-batches in one buffer of an arena, and leak no tensor', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const module = model()
      const layout = flatten(module.parameters)
      const buffer = group.alloc('float32', layout.length)
      const gathered = gatherGradients(layout, buffer)
      const before = tf.memory().numTensors
      gathered.begin()
      runPasses(module, 3, gathered.listener)
      await gathered.finish()
      expect(tf.memory().numTensors).toBe(before)

      const expected = new Map<string, Tensor>()
      runPasses(module, 3, sumInto(expected))
      for (const [name, { offset, length }] of layout.slots) {
        const values = buffer.subarray(offset, offset + length)
        expect(gathered.parts.get(name)).toEqual(values)
        const sums = expected.get(name)!
        const error = tf.tidy(
          () => tf.max(tf.abs(tf.sub(tf.reshape(sums, [length]), values))).dataSync()[0]!,
        )
        expect(error).toBeLessThanOrEqual(1e-5)
        sums.dispose()
      }
      for (const { value } of module.parameters) value.dispose()
      group.free(buffer)
    })
  })

  it('start from zero in each step, and remain zero for a parameter without a gradient', () => {
    const module = model()
    const unused = { name: 'unused', shape: [3] }
    const layout = flatten([...module.parameters, unused])
    const buffer = fill(layout)
    const gathered = gatherGradients(layout, buffer)
    const steps = [0, 1].map(() => {
      gathered.begin()
      runPasses(module, 2, gathered.listener)
      void gathered.finish()
      return buffer.slice()
    })
    expect(steps[1]).toEqual(steps[0])
    expect([...gathered.parts.get('unused')!]).toEqual([0, 0, 0])
    for (const { value } of module.parameters) value.dispose()
  })

  it('are each copied once', () => {
    const parameter = { name: 'w', shape: [1000] } as unknown as Parameter
    const layout = flatten([parameter])
    const gathered = gatherGradients(layout, fill(layout))
    const before = copyCounts().toHost
    gathered.begin()
    gathered.listener(parameter, tf.ones([1000]))
    gathered.listener(parameter, tf.ones([1000]))
    void gathered.finish()
    const after = copyCounts().toHost
    expect(after.count - before.count).toBe(2)
    expect(after.bytes - before.bytes).toBe(8000)
  })

  it.each([
    ['SGD', () => new SGD({ learningRate: 0.1, momentum: 0.9 })],
    ['Adam', () => new Adam({ learningRate: 0.1 })],
  ])('give %s the same results as tensors do', (_, makeOptimizer) => {
    const [first, second] = [model(), model()]
    const layout = flatten(first.parameters)
    const gathered = gatherGradients(layout, fill(layout))
    const optimizers = [makeOptimizer(), makeOptimizer()] as const
    const before = tf.memory()
    for (let step = 0; step < 3; step++) {
      gathered.begin()
      runPasses(first, 1, gathered.listener)
      void gathered.finish()
      optimizers[0].step(first.parameters, gathered.parts)

      const gradients = new Map<string, Tensor>()
      runPasses(second, 1, sumInto(gradients))
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

  it('refuse parameters that are not in the layout', () => {
    const layout = flatten([{ name: 'w', shape: [2, 3] }])
    expect(() => gatherGradients(layout, new Float32Array(5))).toThrow(
      /buffer is one of 5 values; expected the size of the layout, 6 values/,
    )
    const gathered = gatherGradients(layout, fill(layout))
    const gradient = tf.ones([3, 2])
    const given = (name: string) => () => {
      gathered.listener({ name } as Parameter, gradient)
    }
    expect(given('w')).toThrow(/gradient of w is a tensor of shape \[3, 2\]; expected \[2, 3\]/)
    expect(given('v')).toThrow(/gradient of v .* expected one of the layout’s parameters/)
    const parameter = { name: 'w', shape: [2, 3], value: tf.ones([2, 3]) }
    expect(() => {
      new SGD({ learningRate: 1 }).step([parameter], new Map([['w', new Float32Array(5)]]))
    }).toThrow(/gradient of w is an array of 5 values/)
    gradient.dispose()
    parameter.value.dispose()
  })
})
