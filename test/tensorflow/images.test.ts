import { tensorflow, hasFunctions } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

const { describe: describeIt } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

/** Both backends take turns in one process; results are arrays of numbers. */
const setUp = `
  const { BatchNorm, Conv2d, Flatten, Linear, loadBackend, MaxPool2d, record, recordModule, ReLU, Sequential, tf } =
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
    { name: 'alone', group: 'undefined', operations: 2 },
    { name: 'synchronized', group: 'groupOfOne', operations: undefined },
  ])('have the batch norm of the definition, $name', async ({ group, operations }) => {
    const cases = (await run(`
      const groupOfOne = {
        rank: 0, size: 1, ranks: [0], label: 'one',
        allGatherSync: (output, input) => void output.set(input),
        allReduceSync: () => undefined,
      }
      const backend = tf.backend()
      const stock = backend.binding
      return [[6, 3], [5, 3, 2, 5], [3, 2, 7], [8, 14, 14, 32]].map((shape) => {
        const channels = shape.at(-1)
        const before = tf.memory().numTensors
        const norm = new BatchNorm({ name: 'n', channels }, ${group})
        norm.parameters.forEach((parameter, i) => {
          parameter.value.dispose()
          parameter.value = tf.randomNormal([channels], 1 - i, 0.5, 'float32', 3 + i)
        })
        const x = tf.randomNormal(shape, 2, 1, 'float32', 1)
        const dy = tf.randomNormal(shape, 0, 1, 'float32', 2)
        const fused = []
        backend.binding = Object.create(stock, {
          executeOp: {
            value(name, ...rest) {
              if (name !== 'Reshape') fused.push(name)
              return stock.executeOp(name, ...rest)
            },
          },
        })
        const pass = record((input) => norm.forward(input), x, norm.parameters, { needsInputGradient: true })
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
        return { shape, given, found, fused, left: tf.memory().numTensors - before }
      })`)) as {
      shape: number[]
      given: Record<'x' | 'dy' | 'weight' | 'bias', number[]>
      found: Record<string, number[]>
      fused: string[]
      left: number
    }[]
    for (const { shape, given, found, fused, left } of cases) {
      const expected = normalized(given, shape.at(-1)!)
      const errors = Object.entries(expected).map(([key, values]) => [
        key,
        errorOf(found[key]!, values),
      ])
      expect(errors.filter(([, error]) => !(Number(error) < 1e-5))).toEqual([])
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
  for (const { all } of later) expect(errorOf(all, first.all)).toBeLessThan(1e-6)
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
