import { Adam, AdamW, loadBackend, SGD, tf, type Parameter } from '@tsrun/training'
import { build, cases, gradient } from './support/cases.ts'

describe.each(['wasm', 'cpu'] as const)('on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

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

  it('optimizers make the same first steps as torch', () => {
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

  it.each([
    ['patterns', ['**.bias', 'norm.*'] as const],
    ['a predicate', (name: string) => name !== 'layers.0.weight'],
  ])('AdamW decays only parameters that do not match %s', (_, withoutDecay) => {
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

  it('SGD and Adam add the decay to the gradients of parameters that match no pattern', () => {
    for (const [optimizer, weight] of [
      [new SGD({ learningRate: 0.5, weightDecay: 0.5, withoutDecay: 'b' }), [1.5, 3]],
      // the first step of Adam is the learning rate
      [new Adam({ learningRate: 0.5, weightDecay: 0.5, withoutDecay: 'b' }), [1.5, 3.5]],
    ] as const) {
      const parameters = ['a', 'b'].map((name) => build(name, [2, 4]))
      optimizer.step(parameters, new Map(['a', 'b'].map((name) => [name, gradient([0, 0])])))
      const [a, b] = parameters.map(({ value }) => [...value.dataSync()])
      expect(a).toEqual(weight.map((value) => expect.closeTo(value, 5) as number))
      expect(b).toEqual([2, 4])
    }
  })

  it.each(cases)('%s accepts a new learning rate between steps', (_, make) => {
    const parameter = build('p', [1])
    const optimizer = make()
    optimizer.learningRate = 0
    optimizer.step([parameter], new Map([['p', gradient([1])]]))
    expect(parameter.value.dataSync()[0]).toBe(1)
  })

  it.each(cases)(
    '%s replaces values, disposes the gradients that it uses and ignores other parameters',
    (_, make) => {
      const [used, unused] = [build('used', [1, 2]), build('unused', [3])]
      const old = used.value
      const optimizer = make()
      const before = tf.memory()
      for (let step = 0; step < 3; step++) {
        optimizer.step([used, unused], new Map([['used', gradient([1, 1])]]))
      }
      optimizer.dispose()
      expect(tf.memory()).toEqual(before)
      expect(old.isDisposed).toBe(true)
      expect([...unused.value.dataSync()]).toEqual([3])
    },
  )

  it('an optimizer is not affected by packed copies of a weight', () => {
    const weight: Parameter = { name: 'w', shape: [2, 2], value: tf.ones([2, 2]) }
    const x = tf.ones([1, 2])
    expect([...tf.matMul(x, weight.value).dataSync()]).toEqual([2, 2])
    new SGD({ learningRate: 1 }).step([weight], new Map([['w', tf.ones([2, 2])]]))
    expect([...tf.matMul(x, weight.value).dataSync()]).toEqual([0, 0])
  })

  it('an optimizer refuses a gradient of another shape, and names the parameter', () => {
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

  it.each(cases)('%s changes nothing if one gradient does not fit', async (_, make) => {
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

  it.each(cases)('%s refuses gradients if none belongs to a given parameter', async (_, make) => {
    const parameters = [build('a', [1, 2])]
    const optimizer = make()
    const step = (...given: unknown[]) => {
      ;(optimizer.step as (...all: unknown[]) => void)(...given)
    }
    const other = gradient([1, 1])
    for (const [given, message] of [
      [[parameters, new Map([['x', other]])], /gradients is x and others.*parameters, as a\. /],
      [[], /parameters is undefined; expected a list/],
      [[{ parameters }, new Map()], /parameters is an object with parameters/],
      [[new Map([['a', other]])], /gradients is undefined; expected a Map/],
      [[parameters, { a: other }], /gradients is an object with a/],
      [[parameters, Promise.resolve(new Map())], /gradients is a promise/],
    ] as const) {
      const refused = () => {
        step(...given)
      }
      expect(refused).toThrow(expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }))
      expect(refused).toThrow(message)
    }
    expect([...parameters[0]!.value.dataSync()]).toEqual([1, 2])
    expect((await optimizer.state()).size).toBe(0)
    expect([...other.dataSync()]).toEqual([1, 1])
    other.dispose()
    step(parameters, new Map())
  })

  it.each(cases)('%s updates a parameter once, even if it is listed twice', (_, make) => {
    const [tied, once] = [build('a', [1, 2]), build('a', [1, 2])]
    make().step([tied, tied], new Map([['a', Float32Array.of(0.5, -0.5)]]))
    make().step([once], new Map([['a', Float32Array.of(0.5, -0.5)]]))
    expect(tied.value.dataSync()).toEqual(once.value.dataSync())
  })
})
