import {
  Adam,
  AdamW,
  loadBackend,
  SGD,
  sumInto,
  tf,
  type Optimizer,
  type Parameter,
  type Tensor,
} from '@tsrun/training'

type Rule = () => (value: number, gradient: number) => number

/** One scalar by the formulas of torch.optim.SGD. */
const sgd =
  (rate: number, momentum: number): Rule =>
  () => {
    let velocity: number | undefined
    return (value, gradient) => {
      velocity = velocity === undefined ? gradient : momentum * velocity + gradient
      return value - rate * velocity
    }
  }

/** One scalar by the formulas of torch.optim.Adam. */
const adam =
  (rate: number, beta1: number, beta2: number, epsilon: number): Rule =>
  () => {
    let [m, v, t] = [0, 0, 0]
    return (value, gradient) => {
      t += 1
      m = beta1 * m + (1 - beta1) * gradient
      v = beta2 * v + (1 - beta2) * gradient ** 2
      const corrected = Math.sqrt(v / (1 - beta2 ** t))
      return value - (rate * (m / (1 - beta1 ** t))) / (corrected + epsilon)
    }
  }

/** One scalar by the formulas of torch.optim.AdamW: the weight decays first. */
const adamw =
  (rate: number, decay: number, beta1: number, beta2: number, epsilon: number): Rule =>
  () => {
    const step = adam(rate, beta1, beta2, epsilon)()
    return (value, gradient) => step(value - rate * decay * value, gradient)
  }

const build = (name: string, values: number[]): Parameter => ({
  name,
  shape: [values.length],
  value: tf.tensor1d(values),
})
const gradient = (values: number[]) => tf.tensor1d(values)

describe.each(['wasm', 'cpu'] as const)('optimizers on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  const cases: [string, () => Optimizer, Rule][] = [
    ['SGD', () => new SGD({ learningRate: 0.1 }), sgd(0.1, 0)],
    ['SGD with momentum', () => new SGD({ learningRate: 0.1, momentum: 0.9 }), sgd(0.1, 0.9)],
    ['Adam', () => new Adam(), adam(1e-3, 0.9, 0.999, 1e-8)],
    [
      'Adam with options',
      () => new Adam({ learningRate: 0.02, betas: [0.8, 0.95], epsilon: 1e-3 }),
      adam(0.02, 0.8, 0.95, 1e-3),
    ],
    ['AdamW', () => new AdamW(), adamw(1e-3, 0.01, 0.9, 0.999, 1e-8)],
    [
      'AdamW with options',
      () => new AdamW({ learningRate: 0.05, betas: [0.8, 0.95], epsilon: 1e-3, weightDecay: 0.3 }),
      adamw(0.05, 0.3, 0.8, 0.95, 1e-3),
    ],
  ]

  it.each(cases)('%s follows its scalar reference for 50 steps', (_, make, rule) => {
    const start = [0.5, -1.25, 3, 0]
    const parameter = build('p', start)
    const optimizer = make()
    const updates = start.map(() => rule())
    let expected = start
    for (let step = 0; step < 50; step++) {
      const g = expected.map((value, i) => Math.fround(Math.sin(step + i) * 0.3 + value * 0.1))
      optimizer.step([parameter], new Map([['p', gradient(g)]]))
      expected = expected.map((value, i) => updates[i]!(value, g[i]!))
    }
    parameter.value.dataSync().forEach((value, i) => {
      expect(Math.abs(value - expected[i]!)).toBeLessThan(
        2e-6 * Math.max(1, Math.abs(expected[i]!)),
      )
    })
  })

  it("makes torch's first steps", () => {
    const momentum = build('a', [1])
    const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
    optimizer.step([momentum], new Map([['a', gradient([1])]]))
    expect(momentum.value.dataSync()[0]).toBeCloseTo(0.9, 6)
    optimizer.step([momentum], new Map([['a', gradient([1])]]))
    expect(momentum.value.dataSync()[0]).toBeCloseTo(0.71, 6)

    // With bias correction the first step is learningRate * sign(g), whatever the size of g.
    const adaptive = build('b', [1, 1, 1])
    new Adam({ learningRate: 0.01 }).step([adaptive], new Map([['b', gradient([1e-4, -250, 0])]]))
    const [small, large, none] = adaptive.value.dataSync()
    expect(small).toBeCloseTo(0.99, 5)
    expect(large).toBeCloseTo(1.01, 6)
    expect(none).toBe(1)
  })

  it.each(cases)('%s keeps its state by name: order and subsets do not matter', (_, make) => {
    const run = (orders: string[][]) => {
      const parameters = new Map(['a', 'b'].map((name) => [name, build(name, [1, 2])]))
      const optimizer = make()
      for (const order of orders) {
        const gradients = new Map(
          order.map((name) => [name, gradient(name === 'a' ? [1, 2] : [-3, 1])]),
        )
        optimizer.step(
          order.map((name) => parameters.get(name)!),
          gradients,
        )
      }
      return [...parameters.values()].map(({ value }) => [...value.dataSync()])
    }
    expect(run([['a'], ['b', 'a'], ['b']])).toEqual(
      run([
        ['a', 'b'],
        ['a', 'b'],
      ]),
    )
  })

  it.each(cases)('%s goes on from a copy of its state as if nothing had been', async (_, make) => {
    const steps = (optimizer: Optimizer, parameter: Parameter, count: number) => {
      for (let step = 0; step < count; step++) {
        optimizer.step([parameter], new Map([['p', gradient([0.5, -step, 2])]]))
      }
      return [...parameter.value.dataSync()]
    }
    const [first, second] = [make(), make()]
    const parameter = build('p', [1, 2, 3])
    steps(first, parameter, 3)
    const copy = build('p', [...parameter.value.dataSync()])
    const state = await first.state()
    second.loadState(state)
    expect(await second.state()).toEqual(state)
    const expected = steps(first, parameter, 3)
    expect(state.get('p')!.steps).toBe(3)
    for (const values of Object.values(state.get('p')!.values)) values.fill(NaN)
    expect(steps(second, copy, 3)).toEqual(expected)
    expect(await second.state()).toEqual(await first.state())
  })

  it.each([
    ['patterns', ['**.bias', 'norm.*'] as const],
    ['a predicate', (name: string) => name !== 'layers.0.weight'],
  ])('AdamW decays only what %s leave', (_, withoutDecay) => {
    const parameters = ['layers.0.weight', 'layers.0.bias', 'norm.scale'].map((name) =>
      build(name, [2, 4]),
    )
    const gradients = new Map(parameters.map(({ name }) => [name, gradient([0, 0])]))
    const optimizer = new AdamW({ learningRate: 0.5, weightDecay: 0.5, withoutDecay })
    optimizer.step(parameters, gradients)
    expect(parameters.map(({ value }) => [...value.dataSync()])).toEqual([
      [1.5, 3],
      [2, 4],
      [2, 4],
    ])
  })

  it('refuses the state of another optimizer, or of a parameter of another size', async () => {
    const parameter = build('p', [1, 2])
    const adaptive = new Adam()
    adaptive.step([parameter], new Map([['p', gradient([1, 1])]]))
    const state = await adaptive.state()
    expect(() => {
      new SGD({ learningRate: 1, momentum: 0.9 }).loadState(state)
    }).toThrow(/state of p is 1 steps, mean, square; expected a number of steps, velocity/)
    const other = new Adam()
    other.loadState(state)
    expect(() => {
      other.step([build('p', [1, 2, 3])], new Map([['p', gradient([1, 1, 1])]]))
    }).toThrow(/loaded state of p is mean of 2 values; expected as many as the parameter has: 3/)
  })

  it.each(cases)('%s takes a new learning rate between steps', (_, make) => {
    const parameter = build('p', [1])
    const optimizer = make()
    optimizer.learningRate = 0
    optimizer.step([parameter], new Map([['p', gradient([1])]]))
    expect(parameter.value.dataSync()[0]).toBe(1)
  })

  it.each(cases)('%s replaces values, frees what it used and skips the rest', (_, make) => {
    const [used, unused] = [build('used', [1, 2]), build('unused', [3])]
    const old = used.value
    const optimizer = make()
    const before = tf.memory()
    for (let step = 0; step < 3; step++) {
      optimizer.step([used, unused], new Map([['used', gradient([1, 1])]]))
    }
    expect(tf.memory()).toEqual(before)
    expect(old.isDisposed).toBe(true)
    expect([...unused.value.dataSync()]).toEqual([3])
  })

  it('is not fooled by packed copies of a weight', () => {
    const weight: Parameter = { name: 'w', shape: [2, 2], value: tf.ones([2, 2]) }
    const x = tf.ones([1, 2])
    expect([...tf.matMul(x, weight.value).dataSync()]).toEqual([2, 2])
    new SGD({ learningRate: 1 }).step([weight], new Map([['w', tf.ones([2, 2])]]))
    expect([...tf.matMul(x, weight.value).dataSync()]).toEqual([0, 0])
  })

  it('refuses a gradient of another shape, naming the parameter', () => {
    const step = () => {
      new SGD({ learningRate: 1 }).step(
        [build('layers.0.bias', [1, 2])],
        new Map([['layers.0.bias', gradient([1])]]),
      )
    }
    expect(step).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_ARGUMENT',
        message: expect.stringContaining('layers.0.bias') as string,
      }),
    )
  })

  it.each(cases)('%s changes nothing where one gradient does not fit', async (_, make) => {
    const parameters = [build('a', [1, 2]), build('b', [3])]
    const gradients = new Map([
      ['a', gradient([1, 1])],
      ['b', gradient([1, 1])],
    ])
    const optimizer = make()
    expect(() => {
      optimizer.step(parameters, gradients)
    }).toThrow(/the gradient of b/)
    expect([...parameters[0]!.value.dataSync()]).toEqual([1, 2])
    expect((await optimizer.state()).size).toBe(0)
    // the caller's still
    for (const tensor of gradients.values()) expect([...tensor.dataSync()]).toEqual([1, 1])
    tf.dispose([...gradients.values()])
  })

  it.each(cases)('%s makes one step of a parameter that is listed twice', (_, make) => {
    const [tied, once] = [build('a', [1, 2]), build('a', [1, 2])]
    make().step([tied, tied], new Map([['a', Float32Array.of(0.5, -0.5)]]))
    make().step([once], new Map([['a', Float32Array.of(0.5, -0.5)]]))
    expect(tied.value.dataSync()).toEqual(once.value.dataSync())
  })

  it.each<() => Optimizer>([
    () => new SGD({ learningRate: -1 }),
    () => new SGD({ learningRate: Number.NaN }),
    () => new SGD({ learningRate: 1, momentum: 1 }),
    () => new Adam({ betas: [0.9, 1.5] }),
    () => new Adam({ epsilon: -1 }),
    () => new AdamW({ weightDecay: -0.1 }),
  ])('refuses impossible options', (make) => {
    expect(make).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
  })
})

it('sums the gradients of micro-batches by name', async () => {
  await loadBackend('wasm')
  const gradients = new Map<string, Tensor>()
  const before = tf.memory().numTensors
  const add = sumInto(gradients)
  for (const values of [
    [1, 2],
    [3, 4],
    [5, 6],
  ])
    add(build('p', [0, 0]), gradient(values))
  expect([...gradients.get('p')!.dataSync()]).toEqual([9, 12])
  expect(tf.memory().numTensors - before).toBe(4)
})

it('sums gradients that share their memory with another tensor, and leaves that alone', async () => {
  await loadBackend('wasm')
  const gradients = new Map<string, Tensor>()
  const add = sumInto(gradients)
  const mine = gradient([1, 2, 3, 4, 5])
  add(build('p', []), tf.clone(mine))
  add(build('p', []), gradient([1, 1, 1, 1, 1]))
  expect([...gradients.get('p')!.dataSync()]).toEqual([2, 3, 4, 5, 6])
  expect([...mine.dataSync()]).toEqual([1, 2, 3, 4, 5])
})
