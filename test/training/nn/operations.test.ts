import { jest } from '@jest/globals'
import { GPT } from '@tsrun/models'
import {
  Block,
  Conv2d,
  Dropout,
  FeedForward,
  Flatten,
  inPass,
  LayerNorm,
  Linear,
  loadBackend,
  MaxPool2d,
  record,
  recordModule,
  replaceValue,
  RMSNorm,
  Sequential,
  tf,
  type Module,
  type Recording,
  type Tensor,
} from '@tsrun/training'
import { currentBackend, Head, tableParameter } from '@tsrun/training/parts'
import { livelyGpt, small, tokenBatch } from './support/tokens.ts'

const random = (shape: number[], seed: number, deviation = 1) =>
  tf.randomNormal(shape, 0, deviation, 'float32', seed)
const linear = (name: string, inputs: number, outputs: number, activation = 'linear') =>
  new Linear({ name, inputs, outputs, activation: activation as 'linear' })
const feedForward = (name: string, width = 7) => new FeedForward({ name, width, hidden: 13 })

/** Changes parameters that are initially all 0 or all 1. */
function lively<M extends Module>(module: M): M {
  module.parameters.forEach((parameter, i) => {
    const change = random(parameter.shape, i + 1, 0.3)
    replaceValue(parameter, tf.add(parameter.value, change))
    change.dispose()
  })
  return module
}

type Pass = 'backward' | 'halves'

/** Runs the backward pass from a fixed gradient of the output. Returns everything that it computes. */
function backward(recording: Recording, pass: Pass) {
  const found: Record<string, number[]> = { value: [...recording.value.dataSync()] }
  const dy = random(recording.value.shape, 9)
  const take = ({ name }: { name: string }, gradient: Tensor) => {
    expect(found).not.toHaveProperty([name])
    found[name] = [...gradient.dataSync()]
    gradient.dispose()
  }
  const dx = pass === 'backward' ? recording.backward(dy, take) : recording.backwardInput!(dy)
  dy.dispose()
  if (dx !== undefined) found['dx'] = [...dx.dataSync()]
  dx?.dispose()
  if (pass === 'halves') recording.backwardParameters!(take)
  return found
}

const onTape = (module: Module, x: Tensor, needsInputGradient = true) =>
  record((input) => module.forward(input), x, module.parameters, { needsInputGradient })

const operations = () =>
  jest.spyOn(currentBackend() as Required<ReturnType<typeof currentBackend>>, 'recordOperations')

/** How many parts of a recorded module are recorded without the tape. */
function countOperations(module: Module, x: Tensor): number {
  const spy = operations()
  recordModule(module, x, { needsInputGradient: x.dtype === 'float32' }).dispose()
  const results = spy.mock.results.filter(({ value }) => value !== undefined)
  spy.mockRestore()
  return results.length
}

/** Compares several recordings in flight with those of the tape, of equal and of other inputs. */
function compare(module: Module, x: Tensor, other: Tensor) {
  const before = tf.memory().numTensors
  for (const needsInputGradient of x.dtype === 'float32' ? [true, false] : [false]) {
    const inputs = [x, other, x]
    const recordings = inputs.map((input) => recordModule(module, input, { needsInputGradient }))
    const passes: Pass[] = ['halves', 'backward', 'backward']
    recordings.forEach((recording, i) => {
      const taped = onTape(module, inputs[i]!, needsInputGradient)
      const expected = backward(taped, 'backward')
      expect(backward(recording, passes[i]!)).toEqual(expected)
      taped.dispose()
    })
    for (const recording of recordings) recording.dispose()
  }
  expect(tf.memory().numTensors).toBe(before)
}

const floats: [string, number[], () => Module][] = [
  ['a block of long sequences', [2, 70, 12], () => new Block({ name: 'h', width: 12, heads: 3 })],
  [
    'a block of odd sizes',
    [3, 5, 10],
    () => new Block({ name: 'h', width: 10, heads: 2, hidden: 13 }),
  ],
  ['a block of one position', [1, 1, 6], () => new Block({ name: 'h', width: 6, heads: 1 })],
  [
    'feed-forward networks',
    [5, 7],
    () => new Sequential({ a: feedForward('a'), b: feedForward('b') }),
  ],
  ['a network on four axes', [2, 3, 2, 7], () => new Sequential({ a: feedForward('a') })],
  [
    'norms and all activations',
    [2, 3, 6],
    () =>
      new Sequential({
        first: new RMSNorm({ name: 'first', width: 6 }),
        relu: linear('relu', 6, 9, 'relu'),
        norm: new LayerNorm({ name: 'norm', width: 9 }),
        gelu: linear('gelu', 9, 5, 'gelu'),
        silu: linear('silu', 5, 8, 'silu'),
        last: linear('last', 8, 3, 'relu'),
      }),
  ],
  [
    'a block after a ReLU',
    [2, 4, 5],
    () =>
      new Sequential({
        up: linear('up', 5, 8, 'relu'),
        first: new Block({ name: 'h.0', width: 8, heads: 2 }),
        between: linear('between', 8, 8, 'gelu'),
        second: new Block({ name: 'h.1', width: 8, heads: 2 }),
        head: new Head(tableParameter('head', [11, 8], 0, 1)),
      }),
  ],
  ['a part of a GPT', [2, 6, 8], () => new GPT({ ...small, range: [1, 2] })],
  [
    'convolutions before linear layers',
    [3, 8, 8, 2],
    () =>
      new Sequential({
        conv: new Conv2d({ name: 'conv', inputs: 2, outputs: 3, kernel: 3, padding: 1 }),
        pool: new MaxPool2d({ size: 2 }),
        flat: new Flatten(),
        up: linear('up', 48, 10, 'relu'),
        head: linear('head', 10, 4),
      }),
  ],
]

describe('operations on wasm', () => {
  beforeAll(() => loadBackend('wasm', { math: 'exact' }))

  it.each(floats)('give the bits of the tape: %s', (_, shape, build) => {
    const module = lively(build())
    const x = random(shape, 7)
    expect(countOperations(module, x)).toBe(1)
    compare(module, x, random([2 * shape[0]!, ...shape.slice(1)], 8))
  })

  it.each([false, true])('give the bits of the tape: a GPT with a tied head: %p', (tied) => {
    const model = livelyGpt({ tied })
    const [x, other] = [1, 2].map((step) =>
      tokenBatch(step, 3, small.block, small.vocabulary).inputs(),
    )
    expect(countOperations(model, x!)).toBe(1)
    compare(model, x!, other!)
  })

  it('give the values of the tape for NaN, infinities and negative zero', () => {
    const module = floats[5]![2]()
    const values = [NaN, Infinity, -Infinity, 0, -0, 1e30, -1e30, 1e-40, 3]
    const x = tf.tensor(
      Array.from({ length: 60 }, (_, i) => values[i % 11] ?? i),
      [10, 1, 6],
    )
    compare(module, x, random([1, 2, 6], 1))
    const relus = new Sequential({ a: linear('a', 6, 4, 'relu'), b: linear('b', 4, 3) })
    compare(relus, tf.reshape(x, [10, 6]), random([1, 6], 1))
  })

  it('free everything, and do not let memory grow', () => {
    const module = lively(floats[6]![2]())
    const x = random([2, 4, 5], 1)
    const addresses = Array.from({ length: 100 }, (_, i) => {
      const recording = recordModule(module, x, { needsInputGradient: true })
      const { byteOffset } = currentBackend().view!(recording.value)
      if (i % 3 < 2) backward(recording, i % 3 === 0 ? 'backward' : 'halves')
      // A pipeline that fails may never run the second half.
      else recording.backwardInput!(tf.ones(recording.value.shape))!.dispose()
      recording.dispose()
      return byteOffset
    })
    expect(Math.max(...addresses.slice(50))).toBeLessThanOrEqual(
      Math.max(...addresses.slice(0, 50)),
    )
  })

  it.each(['backward', 'halves'] as const)('free everything if the listener throws: %s', (pass) => {
    const module = floats[0]![2]()
    const x = random([1, 4, 12], 1)
    const dy = tf.ones([1, 4, 12])
    for (let count = 0; count < module.parameters.length; count++) {
      const before = tf.memory().numTensors
      const recording = recordModule(module, x, { needsInputGradient: true })
      let left = count
      const take = (_: unknown, gradient: Tensor) => {
        gradient.dispose()
        if (left-- === 0) throw new Error('stop')
      }
      const run = () => {
        if (pass === 'backward') return recording.backward(dy, take)
        recording.backwardInput!(dy)!.dispose()
        recording.backwardParameters!(take)
        return undefined
      }
      expect(run).toThrow('stop')
      recording.dispose()
      expect(tf.memory().numTensors).toBe(before)
    }
  })

  it('free everything if the memory is full', () => {
    const module = floats[0]![2]()
    const x = random([1, 4, 12], 1)
    const dy = tf.ones([1, 4, 12])
    const { backend } = tf.engine() as unknown as {
      backend: { makeOutput: (...given: unknown[]) => unknown }
    }
    const makeOutput = backend.makeOutput.bind(backend)
    let failures = 0
    for (let isDone = false; !isDone; failures++) {
      const before = tf.memory().numTensors
      let left = failures
      const spy = jest.spyOn(backend, 'makeOutput').mockImplementation((...given) => {
        if (left-- === 0) throw new Error('full')
        return makeOutput(...given)
      })
      let recording: Recording | undefined
      const gradients: Tensor[] = []
      try {
        recording = recordModule(module, x, { needsInputGradient: true })
        gradients.push(recording.backwardInput!(dy)!)
        recording.backwardParameters!((_, gradient) => gradients.push(gradient))
        isDone = true
      } catch (error) {
        expect(error).toMatchObject({ message: 'full' })
      }
      spy.mockRestore()
      recording?.dispose()
      tf.dispose(gradients)
      expect(tf.memory().numTensors).toBe(before)
    }
    expect(failures).toBeGreaterThan(4 + module.parameters.length)
  })

  it('refuse a second backward pass, and parameters that were replaced or disposed', () => {
    const module = new Block({ name: 'h', width: 4, heads: 2 })
    const x = random([1, 2, 4], 1)
    const start = () => recordModule(module, x, { needsInputGradient: true })
    const [first, second, third] = [start(), start(), start()]
    const run = (recording: Recording) => () => backward(recording, 'backward')
    run(first)()
    expect(run(first)).toThrow(expect.objectContaining({ code: 'ERR_TSR_BACKWARD_TWICE' }))
    const parameter = module.parameters.find(({ name }) => name === 'h.ln_2.bias')!
    const old = parameter.value
    parameter.value = tf.ones([4])
    expect(run(second)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_STALE_RECORDING',
        message: expect.stringContaining('h.ln_2.bias') as string,
      }),
    )
    parameter.value = old
    old.dispose()
    expect(run(third)).toThrow(expect.objectContaining({ code: 'ERR_TSR_STALE_RECORDING' }))
    expect(start).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
  })

  it('refuse a disposed input, and a recording inside tf.grad', () => {
    const module = new Block({ name: 'h', width: 4, heads: 2 })
    const x = random([1, 2, 4], 1)
    const inGrad = tf.grad(
      (x: Tensor) => recordModule(module, x, { needsInputGradient: true }).value,
    )
    expect(() => inGrad(x)).toThrow(expect.objectContaining({ code: 'ERR_TSR_NESTED_RECORDING' }))
    x.dispose()
    expect(() => module.record(x, { needsInputGradient: true })).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }),
    )
  })

  it.each([[[0, 4, 8]], [[2, 0, 8]], [[8]], [[3, 8]]])(
    'leave an input of shape %j to the tape',
    (shape) => {
      const chain = new Sequential({
        norm: new LayerNorm({ name: 'n', width: 8 }),
        head: linear('l', 8, 3),
      })
      const x = random(shape, 1)
      const isUsed = x.size > 0 && x.rank > 1
      expect(countOperations(chain, x)).toBe(isUsed ? 1 : 0)
      compare(chain, x, random([1, 8], 2))
    },
  )

  it('follow layers, weights and inputs that change', () => {
    const chain = new Sequential({ a: linear('a', 6, 5, 'relu'), b: feedForward('b', 5) })
    const check = (shape: number[]) => {
      compare(chain, random(shape, 1), random(shape, 2))
    }
    check([2, 6])
    check([3, 4, 6])
    chain.children['a'] = linear('c', 6, 5, 'gelu')
    check([2, 6])
    lively(chain)
    check([2, 6])
    Object.assign(chain.children['a'], { weight: tableParameter('d', [6, 5], 1, 1) })
    check([2, 6])
  })

  class Doubled extends Linear {
    override forward(x: Tensor): Tensor {
      return tf.mul(super.forward(x), 2)
    }
  }
  class DoubledChain extends Sequential {
    override forward(x: Tensor): Tensor {
      return super.forward(tf.mul(x, 2))
    }
  }
  class Frozen extends Sequential {
    override get parameters() {
      return super.parameters.slice(2)
    }
  }
  const chainOf = (...layers: Module[]) => new Sequential(Object.fromEntries(layers.entries()))
  const first = () => linear('first', 6, 6)
  const doubled = () => new Doubled({ name: 'doubled', inputs: 6, outputs: 6 })
  const replaced = () => {
    const block = new Block({ name: 'h', width: 6, heads: 2 })
    block.children.mlp = { parameters: [], forward: (x) => tf.mul(x, 2) }
    return block
  }
  const patched = () =>
    Object.assign(linear('patched', 6, 6), { forward: (x: Tensor) => tf.square(x) })
  const dropout = () => new Dropout({ name: 'd', rate: 0.5 })
  const twice = (layer: Module) => chainOf(layer, layer)

  it.each<[string, number, () => Module]>([
    ['its last layer overrides forward', 0, () => chainOf(first(), doubled())],
    ['its first layer overrides forward', 1, () => chainOf(doubled(), first())],
    ['it overrides forward', 0, () => new DoubledChain({ first: first() })],
    [
      'it leaves out parameters',
      0,
      () => new Frozen({ first: first(), next: linear('next', 6, 6) }),
    ],
    ['it uses a layer twice', 0, () => twice(first())],
    ['a child was replaced', 0, replaced],
    ['it has no record', 0, () => Object.assign(first(), { record: undefined })],
    ['it has no operations', 0, () => Object.assign(first(), { operations: undefined })],
    ['the method of a layer was replaced', 0, () => chainOf(first(), patched())],
    ['a layer is a dropout', 1, () => chainOf(first(), dropout(), linear('last', 6, 6))],
    [
      'a block has a dropout',
      0,
      () => new Block({ name: 'h', width: 6, heads: 2, residualDropout: 0.5 }),
    ],
  ])('respect a module on the tape: %s', (_, count, build) => {
    const module = build()
    const x = random([2, 3, 6], 1)
    inPass({ training: true, step: 0 }, () => {
      expect(countOperations(module, x)).toBe(count)
      compare(module, x, random([1, 3, 6], 2))
    })
  })
})
