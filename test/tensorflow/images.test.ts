import { tensorflow, hasFunctions } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

const { describe: describeIt } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

/** Both backends take turns in one process; results are arrays of numbers. */
const setUp = `
  const { BatchNorm, Conv2d, Flatten, inPass, Linear, loadBackend, MaxPool2d, record, recordModule, ReLU, Sequential, tf } =
    training
  await loadBackend('tensorflow')
  const numbers = (tensor) => [...tensor.dataSync()]
`

/** The largest difference, as a share of the largest expected value. */
function errorOf(actual: readonly number[], expected: readonly number[]): number {
  expect(actual).toHaveLength(expected.length)
  const largest = Math.max(...expected.map(Math.abs))
  return Math.max(...expected.map((value, i) => Math.abs(value - actual[i]!))) / largest
}

describeIt('images on tensorflow', () => {
  const warm = new WarmProcess({ ...tensorflow })
  const run = async (body: string) => await warm.run(`${setUp}${body}`)
  afterAll(() => {
    warm.end()
  })

  it.each([
    { name: 'alone', replicas: '[]', operations: 2 },
    { name: 'synchronized', replicas: '[groupOfOne]', operations: undefined },
  ])('have the batch norm of the definition, $name', async ({ replicas, operations }) => {
    const cases = (await run(`
      const groupOfOne = {
        rank: 0, size: 1, ranks: [0], label: 'one',
        allGatherSync: (output, input) => void output.set(input),
        allReduceSync: () => undefined,
      }
      const backend = tf.backend()
      const stock = backend.binding
      const shapes = [[6, 3], [5, 3, 2, 5], [3, 2, 7], [8, 14, 14, 32], [100, 6]]
      return shapes.map((shape) => {
        const offset = shape[0] === 100 ? 100 : 2
        const channels = shape.at(-1)
        const before = tf.memory().numTensors
        const norm = new BatchNorm({ name: 'n', channels })
        norm.parameters.forEach((parameter, i) => {
          parameter.value.dispose()
          parameter.value = tf.randomNormal([channels], 1 - i, 0.5, 'float32', 3 + i)
        })
        const x = tf.randomNormal(shape, offset, 1, 'float32', 1)
        const dy = tf.randomNormal(shape, 0, 1, 'float32', 2)
        const fused = []
        backend.binding = Object.create(stock, {
          executeOp: {
            value(name, ...rest) {
              if (name.startsWith('FusedBatchNorm')) fused.push(name)
              return stock.executeOp(name, ...rest)
            },
          },
        })
        const pass = inPass({ training: true, step: 0, replicas: ${replicas} }, () =>
          record((input) => norm.forward(input), x, norm.parameters, { needsInputGradient: true }))
        const gradients = {}
        const dx = pass.backward(dy, ({ name }, gradient) => {
          gradients[name] = numbers(gradient)
          gradient.dispose()
        })
        backend.binding = stock
        // TensorFlow slices only a tensor that has the shape there, too.
        const sliced = (tensor) => {
          const copy = tf.slice(tensor, shape.map(() => 0), shape)
          const values = numbers(copy)
          copy.dispose()
          return values
        }
        const given = { x: numbers(x), dy: numbers(dy), weight: numbers(norm.parameters[0].value), bias: numbers(norm.parameters[1].value) }
        const found = {
          y: sliced(pass.value), dx: sliced(dx), weight: gradients['n.weight'], bias: gradients['n.bias'],
          mean: numbers(norm.buffers[0].value), variance: numbers(norm.buffers[1].value),
        }
        pass.dispose()
        tf.dispose([x, dy, dx, ...[...norm.parameters, ...norm.buffers].map(({ value }) => value)])
        return { shape, offset, given, found, fused, left: tf.memory().numTensors - before }
      })`)) as {
      shape: number[]
      offset: number
      given: Record<'x' | 'dy' | 'weight' | 'bias', number[]>
      found: Record<string, number[]>
      fused: string[]
      left: number
    }[]
    for (const { shape, offset, given, found, fused, left } of cases) {
      const expected = normalized(given, shape.at(-1)!)
      const errors = Object.entries(expected).map(([key, values]) => [
        key,
        errorOf(found[key]!, values),
      ])
      const limit = offset === 100 ? 1e-4 : 1e-5
      expect(errors.filter(([, error]) => !(Number(error) < limit))).toEqual([])
      if (operations !== undefined) expect(fused).toHaveLength(operations)
      expect(left).toBe(0)
    }
  })

  it('give the gradient of max pooling to the first of equal values', async () => {
    const cases = (await run(`
      const shapes = [[2, 4, 6, 3], [1, 6, 6, 2], [2, 7, 5, 1]]
      const sizes = [[2, 2], [3, 2], [1, 2], [6, 6]]
      const results = []
      for (const shape of shapes) {
        for (const size of sizes.filter(([height, width]) => height <= shape[1] && width <= shape[2])) {
          const gradientsOn = async (name) => {
            await loadBackend(name)
            // with many equal values
            const x = tf.tensor(Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => (i * i) % 3), shape)
            const pass = () => {
              const recording = record((input) => new MaxPool2d({ size }).forward(input), x, [], { needsInputGradient: true })
              const { value } = recording
              const dy = tf.tensor(Float32Array.from({ length: value.size }, (_, i) => i + 1), value.shape)
              const dx = recording.backward(dy, () => undefined)
              const gradient = numbers(dx)
              recording.dispose()
              tf.dispose([dy, dx])
              return gradient
            }
            const all = [1, 2, 3].map(pass)
            x.dispose()
            return all
          }
          results.push({ expected: (await gradientsOn('cpu'))[0], found: await gradientsOn('tensorflow') })
        }
      }
      return results`)) as { expected: number[]; found: number[][] }[]
    expect(cases.length).toBeGreaterThan(8)
    for (const { expected, found } of cases) {
      for (const gradient of found) expect(gradient).toEqual(expected)
    }
  })

  it('give the gradient of windows with NaN or -Infinity to the place of the kernel MaxPoolGrad', async () => {
    const { expected, found } = (await run(`
      const windows = [
        [1, NaN, 3, 2], [NaN, 1, 3, 2], [1, 2, 3, NaN], [NaN, NaN, NaN, NaN], [-Infinity, NaN, -Infinity, -Infinity],
        [-Infinity, -Infinity, -Infinity, -Infinity], [-Infinity, -Infinity, -Infinity, -5], [Infinity, 1, Infinity, 0],
      ]
      const gradientOf = (images) => {
        const dy = tf.tensor4d([7], [1, 1, 1, 1])
        const gradient = tf.grad((x) => tf.maxPool(x, [2, 2], [2, 2], 'valid'))(images, dy)
        return numbers(tf.slice(gradient, [0, 0, 0, 0], [1, 2, 2, 1]))
      }
      const images = windows.map((values) => tf.tensor4d(values, [1, 2, 2, 1]))
      // The kernel itself computes the gradients of windows that leave a part of the images out.
      const larger = images.map((image) => tf.pad(image, [[0, 0], [0, 1], [0, 1], [0, 0]]))
      return { expected: larger.map(gradientOf), found: images.map(gradientOf) }`)) as Record<
      'expected' | 'found',
      number[][]
    >
    expect(found).toEqual(expected)
    expect(found.map((values) => values.indexOf(7))).toEqual([2, 0, 2, 0, 0, 0, 3, 0])
  })

  it('give sums of columns, of any number, in any order of distinct axes', async () => {
    const { found, operations } = (await run(`
      const backend = tf.backend()
      const stock = backend.binding
      const operations = []
      backend.binding = Object.create(stock, {
        executeOp: {
          value(name, ...rest) {
            if (name === 'Sum' || name === 'BiasAddGrad') operations.push(name)
            return stock.executeOp(name, ...rest)
          },
        },
      })
      const found = [[15, [0, 1]], [16, [0, 1]], [16, [1, 0]], [16, [-2, 0]]].map(([columns, axes]) =>
        numbers(tf.sum(tf.ones([3, 2, columns]), axes)))
      backend.binding = stock
      return { found, operations }`)) as { found: number[][]; operations: string[] }
    expect(found).toEqual([15, 16, 16, 16].map((columns) => Array<number>(columns).fill(6)))
    expect(operations).toEqual(['Sum', ...Array<string>(3).fill('BiasAddGrad')])
  })

  it('computes gradients of filters of 1 x 1 with different strides for rows and columns', async () => {
    const result = await run(`
      const x = tf.range(0, 52).reshape([1, 4, 13, 1])
      const filter = tf.ones([1, 1, 1, 1])
      const gradient = tf.grad((filter) => tf.conv2d(x, filter, [2, 1], 'same'))
      const all = new Set()
      for (let i = 0; i < 200; i++) tf.tidy(() => all.add(gradient(filter).dataSync()[0]))
      return [...all]`)
    // Rows 0 and 2 of the image.
    expect(result).toEqual([13 * 6 + 13 * 32])
  })
})

const { it: itIf } = needing(
  hasFunctions,
  'TensorFlow with the binding of these sources (npx tsrun setup tensorflow)',
)

itIf('a network with convolutions becomes TensorFlow functions with its values', async () => {
  const warm = new WarmProcess({ ...tensorflow })
  const passes = (await warm.run(`${setUp}
    const same = { kernel: 3, padding: 'same', activation: 'relu' }
    const model = new Sequential({
      conv: new Conv2d({ name: 'conv', inputs: 2, outputs: 4, ...same }),
      pool: new MaxPool2d({ size: 2 }),
      again: new Conv2d({ name: 'again', inputs: 4, outputs: 3, kernel: 3, bias: false }),
      relu: new ReLU(),
      flat: new Flatten(),
      head: new Linear({ name: 'head', inputs: 48, outputs: 5 }),
    })
    const x = tf.randomNormal([3, 12, 12, 2], 0, 1, 'float32', 1)
    const dy = tf.randomNormal([3, 5], 0, 1, 'float32', 2)
    const backend = tf.backend()
    const stock = backend.binding
    let operations = 0
    backend.binding = Object.create(stock, {
      executeOp: {
        value(...call) {
          operations++
          return stock.executeOp(...call)
        },
      },
    })
    return [1, 2, 3, 4].map(() => {
      operations = 0
      const pass = recordModule(model, x, { needsInputGradient: true })
      const gradients = []
      const dx = pass.backward(dy, ({ name }, gradient) => {
        gradients.push(...numbers(gradient))
        gradient.dispose()
      })
      const all = [...numbers(pass.value), ...numbers(dx), ...gradients]
      pass.dispose()
      dx.dispose()
      return { all, operations }
    })`)) as { all: number[]; operations: number }[]
  warm.end()
  const [first, ...later] = passes as [(typeof passes)[0], ...typeof passes]
  for (const { all } of later) expect(all).toEqual(first.all)
  expect(first.operations).toBeGreaterThan(10)
  expect(later.at(-1)!.operations).toBe(0)
})

/** In float64, by definition. */
function normalized(
  { x, dy, weight, bias }: Record<'x' | 'dy' | 'weight' | 'bias', number[]>,
  channels: number,
) {
  const rows = x.length / channels
  const sums = (values: readonly number[]): number[] =>
    Array.from({ length: channels }, (_, c) =>
      values.reduce((sum, value, i) => (i % channels === c ? sum + value : sum), 0),
    )
  const mean = sums(x).map((sum) => sum / rows)
  const squares = sums(x.map((value, i) => (value - mean[i % channels]!) ** 2))
  const inverse = squares.map((sum) => 1 / Math.sqrt(sum / rows + 1e-5))
  const normal = x.map((value, i) => (value - mean[i % channels]!) * inverse[i % channels]!)
  const [dBias, dWeight] = [sums(dy), sums(dy.map((slope, i) => slope * normal[i]!))]
  return {
    y: normal.map((value, i) => value * weight[i % channels]! + bias[i % channels]!),
    dx: dy.map((slope, i) => {
      const c = i % channels
      const rest = slope - (dBias[c]! + normal[i]! * dWeight[c]!) / rows
      return weight[c]! * inverse[c]! * rest
    }),
    weight: dWeight,
    bias: dBias,
    mean: mean.map((value) => 0.1 * value),
    variance: squares.map((sum) => 0.9 + (0.1 * sum) / (rows - 1)),
  }
}
