import {
  BatchNorm,
  clipGradients,
  crossEntropy,
  crossEntropyWith,
  gelu,
  LayerNorm,
  loadBackend,
  record,
  replaceValue,
  RMSNorm,
  silu,
  tf,
  viewOf,
  type Module,
  type Tensor,
} from '@tsrun/training'

/** Values without a pattern that sums would cancel, the same in each run. */
const wave = (size: number, factor = 1, offset = 0) =>
  Float32Array.from({ length: size }, (_, i) => offset + factor * Math.sin(1 + i * i))

/** The output of a module, and the gradients of the input and of the parameters. */
function run(module: Pick<Module, 'forward' | 'parameters'>, x: Float32Array, shape: number[]) {
  const before = tf.memory()
  const [input, dy] = [tf.tensor(x, shape), tf.tensor(wave(x.length, 2, 0.5), shape)]
  const pass = record((h) => module.forward(h), input, module.parameters, {
    needsInputGradient: true,
  })
  const gradients: Float32Array[] = []
  const dx = pass.backward(dy, (_, gradient) => {
    gradients.push(viewOf(gradient).slice())
    gradient.dispose()
  })!
  const results = [viewOf(pass.value).slice(), viewOf(dx).slice(), ...gradients]
  pass.dispose()
  tf.dispose([input, dy, dx])
  expect(tf.memory()).toEqual(before)
  return results
}

/** The largest error, relative to the largest value, or to the largest term of a difference. */
function errorOf(actual: ArrayLike<number>, exact: ArrayLike<number>, term = 0): number {
  const all = Array.from(exact)
  const largest = all.reduce((most, value) => Math.max(most, Math.abs(value)), term)
  const error = all.reduce((most, value, i) => Math.max(most, Math.abs(value - actual[i]!)), 0)
  return error === 0 ? 0 : error / largest
}

const shapes = [
  [1, 1],
  [1, 7],
  [6, 1],
  [3, 8],
  [2, 3, 20],
  [130, 33],
  [129, 384],
  [2, 4096],
]

describe.each([
  {
    name: 'LayerNorm',
    centers: true,
    make: (width: number) => new LayerNorm({ name: 'n', width }),
  },
  { name: 'RMSNorm', centers: false, make: (width: number) => new RMSNorm({ name: 'n', width }) },
])('$name on wasm', ({ centers, make }) => {
  beforeAll(() => loadBackend('wasm'))

  const build = (width: number): Module => {
    const module = make(width)
    module.parameters.forEach((parameter, i) => {
      parameter.value.dispose()
      parameter.value = tf.tensor1d(wave(width, 0.5, 1 - i))
    })
    return module
  }

  /** The definition in double precision. */
  const exact = (module: Module, x: Float32Array, width: number) => {
    const [scale, shift] = module.parameters.map(({ value }) => viewOf(value))
    const dys = wave(x.length, 2, 0.5)
    const [value, dx] = [new Float64Array(x.length), new Float64Array(x.length)]
    const [dScale, dShift] = [new Float64Array(width), new Float64Array(width)]
    let term = 0
    for (let start = 0; start < x.length; start += width) {
      const row = Array.from(x.subarray(start, start + width))
      const mean = (f: (i: number) => number) => row.reduce((sum, _, i) => sum + f(i), 0) / width
      const middle = centers ? mean((i) => row[i]!) : 0
      const inverse = 1 / Math.sqrt(mean((i) => (row[i]! - middle) ** 2) + 1e-5)
      const normal = row.map((each) => (each - middle) * inverse)
      const slope = row.map((_, i) => dys[start + i]! * scale![i]!)
      const along = mean((i) => slope[i]! * normal[i]!)
      const aside = centers ? mean((i) => slope[i]!) : 0
      row.forEach((_, i) => {
        term = Math.max(term, Math.abs(inverse * slope[i]!))
        value[start + i] = normal[i]! * scale![i]! + (shift?.[i] ?? 0)
        dx[start + i] = inverse * (slope[i]! - aside - normal[i]! * along)
        dScale[i]! += dys[start + i]! * normal[i]!
        dShift[i]! += dys[start + i]!
      })
    }
    return { wanted: [value, dx, dScale, dShift], term }
  }

  it.each(shapes.flatMap((shape) => [0, 1000].map((offset) => ({ shape, offset }))))(
    'equals its definition for $shape around $offset',
    ({ shape, offset }) => {
      const width = shape.at(-1)!
      const module = build(width)
      const x = wave(
        shape.reduce((a, b) => a * b),
        3,
        offset,
      )
      // Rows of equal values have no variance.
      x.fill(2, 0, width)
      const results = run(module, x, shape)
      const { wanted, term } = exact(module, x, width)
      results.forEach((values, i) => {
        expect(errorOf(values, wanted[i]!, i === 1 ? term : 0)).toBeLessThan(3e-7)
      })
    },
  )

  it.each([32, 33])('gives a row of %d values the same bits in any batch', (width) => {
    const module = build(width)
    const x = wave(70 * width, 3, 10)
    const [whole] = run(module, x, [70, width])
    for (const row of [0, 1, 69]) {
      const [first, end] = [row * width, (row + 1) * width]
      const [own] = run(module, x.slice(first, end), [1, width])
      expect(own).toEqual(whole!.slice(first, end))
    }
  })

  it.each([8, 9])('keeps NaN and infinities of %d values to their row', (width) => {
    const x = wave(4 * width)
    x[1] = NaN
    x[width] = Infinity
    const [value, dx, , dShift] = run(build(width), x, [4, width])
    for (const values of [value!, dx!]) {
      expect(values.subarray(0, width).every(Number.isNaN)).toBe(true)
      expect(values.subarray(2 * width).every(Number.isFinite)).toBe(true)
    }
    expect(value!.subarray(width, 2 * width)).toContainEqual(NaN)
    if (centers) expect(dShift!.every(Number.isFinite)).toBe(true)
  })
})

describe.each([
  ['gelu', gelu, (z: number) => 1.595_769_121_605_730_8 * (z + 0.044_715 * z ** 3)],
  ['silu', silu, (z: number) => z],
] as const)('%s on wasm', (_, forward, inner) => {
  const module = { forward, parameters: [] }

  it.each([1, 2, 3, 4, 7, 2501])('equals its definition for %d values', async (size) => {
    await loadBackend('wasm')
    const x = wave(size, 6)
    const value = (z: number) => z / (1 + Math.exp(-inner(z)))
    const slopes = x.map((z, i) => {
      const slope = (value(z + 1e-5) - value(z - 1e-5)) / 2e-5
      return (0.5 + 2 * Math.sin(1 + i * i)) * slope
    })
    const results = run(module, x, [size])
    expect(errorOf(results[0]!, Float64Array.from(x, value))).toBeLessThan(3e-7)
    expect(errorOf(results[1]!, slopes)).toBeLessThan(3e-7)
  })

  it('has the limits of its definition', async () => {
    const x = Float32Array.of(NaN, Infinity, -Infinity, 1e18, -1e18, 200, -200, 0, -0, 1e-30)
    const results: Float32Array[][] = []
    for (const backend of ['wasm', 'cpu'] as const) {
      await loadBackend(backend)
      results.push(run(module, x, [x.length]))
    }
    const [[value], [wanted]] = results as [Float32Array[], Float32Array[]]
    value!.forEach((y, i) => {
      if (Number.isFinite(y)) expect(y).toBeCloseTo(wanted![i]!)
      else expect(y).toBe(wanted![i])
    })
    expect(Array.from(results[0]![1]!.subarray(3, 7), Number.isFinite)).not.toContain(false)
  })
})

describe('cross-entropy on wasm', () => {
  const losses = {
    plain: crossEntropy,
    smoothed: crossEntropyWith({ labelSmoothing: 0.1, ignoreIndex: 2 }),
    uniform: crossEntropyWith({ labelSmoothing: 1, reduction: 'sum' }),
  }
  const evaluate = (name: keyof typeof losses, logits: Float32Array, shape: number[]) => {
    const before = tf.memory()
    const classes = shape.at(-1)!
    const labels = Int32Array.from({ length: logits.length / classes }, (_, i) => (i * 3) % classes)
    const [x, y] = [tf.tensor(logits, shape), tf.tensor(labels, shape.slice(0, -1), 'int32')]
    const results = tf.tidy(() => {
      const { value, grad } = tf.valueAndGrad((h: Tensor) => losses[name](h, y))(x)
      return [value, grad].map((tensor) => tensor.dataSync<'float32'>().slice())
    })
    tf.dispose([x, y])
    expect(tf.memory()).toEqual(before)
    return results
  }

  it.each(
    (Object.keys(losses) as (keyof typeof losses)[]).flatMap((name) =>
      [
        [1, 1],
        [1, 3],
        [5, 2],
        [2, 3, 65],
        [300, 10],
        [2, 5003],
      ].map((shape) => ({ name, shape })),
    ),
  )('equals the definition of cpu: $name, $shape', async ({ name, shape }) => {
    const size = shape.reduce((a, b) => a * b)
    const logits = [wave(size, 5), wave(size, 400), wave(size)]
    // In two rows, classes that cannot be.
    logits[2]![0] = -Infinity
    logits[2]![size - 1] = -Infinity
    for (const each of logits) {
      await loadBackend('cpu')
      const wanted = evaluate(name, each, shape)
      await loadBackend('wasm')
      evaluate(name, each, shape).forEach((values, i) => {
        const isEqual = values.every((value, k) => {
          const exact = wanted[i]![k]!
          return Object.is(value, exact) || Math.abs(value - exact) <= 1.2e-7 * Math.abs(exact)
        })
        expect(isEqual).toBe(true)
      })
    }
  })

  it('converts whole numbers', async () => {
    await loadBackend('wasm')
    const [x, y] = [tf.tensor2d([[3, 1]], [1, 2], 'int32'), tf.tensor1d([0], 'int32')]
    expect(crossEntropy(x, y).dataSync()[0]).toBeCloseTo(Math.log(1 + Math.exp(-2)), 6)
    expect(silu(x).dataSync()[0]).toBeCloseTo(3 / (1 + Math.exp(-3)), 6)
  })

  it('keeps NaN and Infinity to their row', async () => {
    await loadBackend('wasm')
    const logits = wave(4 * 5)
    logits[2] = NaN
    logits[5] = Infinity
    const [loss, gradient] = evaluate('plain', logits, [4, 5])
    expect(loss![0]).toBeNaN()
    expect(gradient!.subarray(0, 10).every(Number.isNaN)).toBe(true)
    expect(gradient!.subarray(10).every(Number.isFinite)).toBe(true)
  })
})

describe('clipping on wasm', () => {
  beforeAll(() => loadBackend('wasm'))

  it.each([1, 3, 4, 1001])('has the bits of clipping arrays: %d values', async (size) => {
    const parameters = [{ name: 'a', shape: [size] }]
    const array = wave(size, 3, 0.1)
    const tensor = tf.tensor1d(array)
    const shared = tensor.clone()
    const gradients = new Map<string, Tensor>([['a', tensor]])
    const norm = await clipGradients(parameters, gradients, { maxNorm: 0.3 })
    expect(viewOf(shared)).toEqual(array)
    expect(await clipGradients(parameters, new Map([['a', array]]), { maxNorm: 0.3 })).toBe(norm)
    expect(viewOf(gradients.get('a')!)).toEqual(array)
    tf.dispose([shared, ...gradients.values()])
  })
})

describe('BatchNorm on wasm', () => {
  it.each(
    [
      [1, 1],
      [7, 3],
      [2, 3, 5, 8],
      [130, 33],
    ].flatMap((shape) => [0, 1000].map((offset) => ({ shape, offset }))),
  )('equals its definition on cpu for $shape around $offset', async ({ shape, offset }) => {
    const channels = shape.at(-1)!
    const x = wave(
      shape.reduce((a, b) => a * b),
      3,
      offset,
    )
    const results: Float32Array[][] = []
    for (const backend of ['cpu', 'wasm'] as const) {
      await loadBackend(backend)
      const norm = new BatchNorm({ name: 'n', channels })
      norm.parameters.forEach((parameter, i) => {
        replaceValue(parameter, tf.tensor1d(wave(channels, 0.5, 1 - i)))
      })
      const all = run(norm, x, shape)
      results.push([...all, ...norm.buffers.map(({ value }) => viewOf(value).slice())])
      tf.dispose([...norm.parameters, ...norm.buffers].map(({ value }) => value))
    }
    const [wanted, actual] = results
    actual!.forEach((values, i) => {
      expect(errorOf(values, wanted![i]!, i === 1 ? 1 : 0)).toBeLessThan(3e-7)
    })
  })
})
