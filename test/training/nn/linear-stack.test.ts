import {
  Linear,
  loadBackend,
  record,
  recordModule,
  ShardedMLP,
  tf,
  type Module,
  type Tensor,
} from '@tsrun/training'

/** Largest difference, relative to the largest value. */
function relativeError(actual: Tensor, expected: Tensor): number {
  return tf.tidy(() => {
    const scale = tf.max(tf.abs(expected)).dataSync()[0]!
    return tf.max(tf.abs(tf.sub(actual, expected))).dataSync()[0]! / scale
  })
}

describe.each(['wasm', 'cpu'] as const)('the passes of linear layers on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  const cases: [string, number, () => Module][] = [
    ['a whole network', 16, () => new ShardedMLP({ layers: 4, inputs: 20, hidden: 24, seed: 1 })],
    ['layers in the middle', 16, () => new ShardedMLP({ layers: 16, hidden: 128, range: [4, 8] })],
    ['one row', 1, () => new ShardedMLP({ layers: 3, inputs: 9, hidden: 7, outputs: 2, seed: 2 })],
    ['more rows than units', 50, () => new ShardedMLP({ layers: 3, inputs: 9, hidden: 13 })],
    ['one linear layer', 5, () => new Linear({ name: 'a', inputs: 6, outputs: 3 })],
    [
      'a rectified layer',
      5,
      () => new Linear({ name: 'a', inputs: 6, outputs: 3, activation: 'relu' }),
    ],
  ]

  it.each(cases)('give the same bits if the backward pass runs in halves: %s', (_, rows, build) => {
    const module = build()
    const x = tf.randomNormal([rows, module.parameters[0]!.shape[0]!], 0, 1, 'float32', 7)
    for (const needsInputGradient of [true, false]) {
      const before = tf.memory().numTensors
      const whole = recordModule(module, x, { needsInputGradient })
      const halved = recordModule(module, x, { needsInputGradient })
      const dy = tf.randomNormal(whole.value.shape, 0, 1, 'float32', 8)
      const gradients = new Map<string, Tensor>()
      const dx = whole.backward(dy, ({ name }, gradient) => gradients.set(name, gradient))
      const halvedDx = halved.backwardInput!(dy)
      dy.dispose()
      expect(halvedDx?.dataSync()).toEqual(dx?.dataSync())
      halved.backwardParameters!(({ name }, gradient) => {
        expect(gradient.dataSync()).toEqual(gradients.get(name)!.dataSync())
        gradient.dispose()
      })
      whole.dispose()
      halved.dispose()
      tf.dispose([...gradients.values()])
      dx?.dispose()
      halvedDx?.dispose()
      expect(tf.memory().numTensors).toBe(before)
    }
    x.dispose()
    for (const { value } of module.parameters) value.dispose()
  })

  it.each(cases)('have the results of tf.grads and the tape: %s', (_, rows, build) => {
    const module = build()
    const inputs = module.parameters[0]!.shape[0]!
    const x = tf.randomNormal([rows, inputs], 0, 1, 'float32', 7)
    const { shape } = module.forward(x)
    const dy = tf.randomNormal(shape, 0, 1, 'float32', 8)

    const recording = recordModule(module, x, { needsInputGradient: true })
    const taped = record((h) => module.forward(h), x, module.parameters, {
      needsInputGradient: true,
    })
    expect(relativeError(recording.value, taped.value)).toBeLessThan(1e-6)
    const names: string[] = []
    const gradients = new Map<string, Tensor>()
    const dx = recording.backward(dy, ({ name }, gradient) => {
      names.push(name)
      gradients.set(name, gradient)
    })
    const tapedDx = taped.backward(dy, ({ name }, gradient) => {
      expect(relativeError(gradients.get(name)!, gradient)).toBeLessThan(1e-6)
    })
    expect(relativeError(dx!, tapedDx!)).toBeLessThan(1e-6)

    const values = module.parameters.map(({ value }) => value)
    const [expectedDx, ...expected] = tf.grads((input: Tensor) => module.forward(input))(
      [x, ...values],
      dy,
    )
    expect(relativeError(dx!, expectedDx!)).toBeLessThan(1e-6)
    module.parameters.forEach(({ name }, i) => {
      expect(relativeError(gradients.get(name)!, expected[i]!)).toBeLessThan(1e-6)
    })
    expect(names).toEqual(module.parameters.map(({ name }) => name).reverse())
  })

  it('give the same bits as forward, for any number of rows', () => {
    const module = new ShardedMLP({ layers: 4, inputs: 20, hidden: 24 })
    const x = tf.randomNormal([9, 20], 0, 1, 'float32', 7)
    const whole = module.forward(x).dataSync()
    const parts = [0, 4, 8].flatMap((row) => {
      const rows = tf.slice(x, [row, 0], [Math.min(4, 9 - row), 20])
      return [...recordModule(module, rows, { needsInputGradient: false }).value.dataSync()]
    })
    expect(parts).toEqual([...whole])
  })

  it('support several micro-batches in flight, and leak no tensor', () => {
    const module: Module = new ShardedMLP({ layers: 3, inputs: 6, hidden: 5 })
    const before = tf.memory()
    const inputs = [1, 2, 3].map((seed) => tf.randomNormal([4, 6], 0, 1, 'float32', seed))
    const dy = tf.ones([4, 10])
    const recordings = inputs.map((x) => recordModule(module, x, { needsInputGradient: true }))
    tf.dispose(inputs)
    for (const recording of recordings) {
      const dx = recording.backward(dy, (_, gradient) => {
        gradient.dispose()
      })
      dx!.dispose()
      recording.dispose()
      recording.dispose()
    }
    const unused = recordModule(module, tf.keep(tf.zeros([4, 6])), { needsInputGradient: false })
    unused.dispose()
    dy.dispose()
    expect(tf.memory().numTensors).toBe(before.numTensors + 1)
  })

  it('outlive a tf.tidy around them', () => {
    const module = new ShardedMLP({ layers: 2, inputs: 6, hidden: 5 })
    const tensors: Tensor[] = []
    tf.tidy(() => {
      const recording = recordModule(module, tf.ones([4, 6]), { needsInputGradient: true })
      const dx = recording.backward(tf.ones([4, 10]), (_, gradient) => tensors.push(gradient))
      tensors.push(recording.value, dx!)
    })
    expect(tensors.map(({ isDisposed }) => isDisposed)).toEqual(new Array(6).fill(false))
  })

  it.each([[[4, 5]], [[6]], [[1, 4, 6]]])('refuse an input of shape %j', (shape) => {
    const module = new ShardedMLP({ layers: 2, inputs: 6, hidden: 5 })
    expect(() => recordModule(module, tf.ones(shape), { needsInputGradient: true })).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_ARGUMENT',
        message: expect.stringContaining('layers.0.weight') as string,
      }),
    )
  })

  it('take a batch without rows, whose gradients are 0', () => {
    const module = new ShardedMLP({ layers: 2, inputs: 6, hidden: 5 })
    const recording = recordModule(module, tf.zeros([0, 6]), { needsInputGradient: true })
    const gradients: Tensor[] = []
    const dx = recording.backward(tf.zeros([0, 10]), (_, gradient) => gradients.push(gradient))
    expect([recording.value.shape, dx!.shape]).toEqual([
      [0, 10],
      [0, 6],
    ])
    expect(gradients).toHaveLength(4)
    for (const gradient of gradients) expect(tf.any(gradient.cast('bool')).dataSync()[0]).toBe(0)
  })

  it('refuse a gradient of another shape than the output', () => {
    const module = new ShardedMLP({ layers: 2, inputs: 6, hidden: 5 })
    for (const recording of [
      recordModule(module, tf.ones([4, 6]), { needsInputGradient: false }),
      record((x) => module.forward(x), tf.ones([4, 6]), [], { needsInputGradient: true }),
    ]) {
      expect(() => recording.backward(tf.ones([4, 9]), () => undefined)).toThrow(
        expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }),
      )
      recording.backward(tf.ones([4, 10]), () => undefined)
    }
  })

  it('refuse a second backward pass, and one after parameters changed', () => {
    const module = new ShardedMLP({ layers: 2, inputs: 6, hidden: 5 })
    const recordings = [1, 2].map(() =>
      recordModule(module, tf.ones([4, 6]), { needsInputGradient: false }),
    )
    const run = (which: number) => () => {
      recordings[which]!.backward(tf.ones([4, 10]), () => undefined)
    }
    run(0)()
    expect(run(0)).toThrow(expect.objectContaining({ code: 'ERR_TSR_BACKWARD_TWICE' }))
    module.parameters[2]!.value = tf.zeros([5, 10])
    expect(run(1)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_STALE_RECORDING',
        message: expect.stringContaining('layers.1.weight') as string,
      }),
    )
  })
})
