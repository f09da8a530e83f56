import {
  AvgPool2d,
  Conv2d,
  Flatten,
  loadBackend,
  MaxPool2d,
  recordModule,
  Sequential,
  sumInto,
  tf,
  type Conv2dOptions,
  type Module,
  type Tensor,
} from '@tsrun/training'

const given = (options: unknown) => options as never
const wave = (shape: number[], shift = 0) =>
  tf.tensor(
    Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) =>
      Math.sin(1.7 * i + shift),
    ),
    shape,
  )

/** The definition, in double precision: a sum for each output. */
function convolve(
  x: Tensor,
  { weight, bias }: Conv2d,
  { stride, padding }: { stride: readonly [number, number]; padding: number },
): { shape: number[]; values: Float64Array } {
  const [batch, height, width, inputs] = x.shape as [number, number, number, number]
  const [tall, wide, , outputs] = weight.shape as [number, number, number, number]
  const rows = Math.floor((height + 2 * padding - tall) / stride[0]) + 1
  const columns = Math.floor((width + 2 * padding - wide) / stride[1]) + 1
  const [images, filter] = [x.dataSync(), weight.value.dataSync()]
  const shifts = bias?.value.dataSync()
  const values = new Float64Array(batch * rows * columns * outputs)
  let at = 0
  for (let b = 0; b < batch; b++)
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++)
        for (let o = 0; o < outputs; o++, at++) {
          values[at] = shifts?.[o] ?? 0
          for (let i = 0; i < tall; i++)
            for (let j = 0; j < wide; j++) {
              const [y, z] = [r * stride[0] + i - padding, c * stride[1] + j - padding]
              if (y < 0 || y >= height || z < 0 || z >= width) continue
              for (let k = 0; k < inputs; k++) {
                const pixel = images[((b * height + y) * width + z) * inputs + k]!
                values[at]! += pixel * filter[((i * wide + j) * inputs + k) * outputs + o]!
              }
            }
        }
  return { shape: [batch, rows, columns, outputs], values }
}

describe.each(['wasm', 'cpu'] as const)('on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  describe('Conv2d', () => {
    it.each<[Omit<Conv2dOptions, 'name' | 'inputs' | 'outputs'>, [number, number], number]>([
      [{ kernel: 3 }, [1, 1], 0],
      [{ kernel: [3, 2], padding: 1 }, [1, 1], 1],
      [{ kernel: [2, 3], stride: [2, 1], padding: 1, bias: false }, [2, 1], 1],
      [{ kernel: 5, stride: 2, padding: 2 }, [2, 2], 2],
    ])('is a sum over windows: %j', (options, stride, padding) => {
      const layer = new Conv2d({ name: 'conv', inputs: 3, outputs: 4, ...options })
      const x = wave([2, 6, 7, 3])
      const wanted = convolve(x, layer, { stride, padding })
      const y = layer.forward(x)
      expect(y.shape).toEqual(wanted.shape)
      y.dataSync().forEach((value, i) => {
        expect(value).toBeCloseTo(wanted.values[i]!, 4)
      })
      expect(layer.parameters).toHaveLength(options.bias === false ? 1 : 2)
    })

    it('has gradients that are the slopes of the output', () => {
      const layer = new Conv2d({ name: 'c', inputs: 2, outputs: 3, kernel: 3, padding: 'same' })
      expectSlopes(layer, [2, 5, 4, 2])
    })

    it('draws initial weights by name, with a deviation that fits its window', () => {
      const make = (name: string) => new Conv2d({ name, inputs: 3, outputs: 64, kernel: 5 })
      const [a, again, b] = [make('a'), make('a'), make('b')].map((layer) =>
        layer.weight.value.dataSync(),
      )
      expect(a).toEqual(again)
      expect(a).not.toEqual(b)
      const limit = Math.sqrt(6 / 75)
      expect(Math.max(...a!)).toBeLessThanOrEqual(limit)
      expect(Math.max(...a!)).toBeGreaterThan(0.99 * limit)
    })

    it('explains invalid inputs and options', () => {
      const layer = new Conv2d({ name: 'c', inputs: 3, outputs: 1, kernel: 2 })
      expect(() => layer.forward(wave([1, 4, 4, 1]))).toThrow(
        'the input of c.weight is a tensor of shape [1, 4, 4, 1]; expected float32 [batch, height, width, 3]',
      )
      expect(() => new Conv2d(given({ name: 'c', inputs: 3, outputs: 1 }))).toThrow(/kernel is/)
      expect(() => new MaxPool2d(given({ size: 0 }))).toThrow(/size is 0; expected a positive/)
    })
  })

  it('MaxPool2d and AvgPool2d take the largest value and the mean of each window', () => {
    const x = tf.tensor4d([-1, -2, 3, 4, -3, -4, 7, 8, 9, 9, 9, 9], [1, 3, 4, 1])
    expect([...new MaxPool2d({ size: 2 }).forward(x).dataSync()]).toEqual([-1, 8])
    expect([...new AvgPool2d({ size: 2 }).forward(x).dataSync()]).toEqual([-2.5, 5.5])
    const small = new MaxPool2d({ size: [1, 2], stride: 1 }).forward(x)
    expect(small.shape).toEqual([1, 3, 3, 1])
    expect([...small.dataSync()].slice(0, 3)).toEqual([-1, 3, 4])
    expectSlopes(new MaxPool2d({ size: 2 }), [1, 4, 4, 5])
    expectSlopes(new AvgPool2d({ size: 2, stride: 1 }), [1, 4, 4, 3])
  })

  it.each([{ size: 2 }, { size: 3, stride: 1 }, { size: [1, 2] as const }])(
    'a Conv2d with a ReLU and a MaxPool2d %j have the same gradients together and apart',
    (options) => {
      const conv = new Conv2d({
        ...{ name: 'c', inputs: 2, outputs: 5 },
        kernel: 3,
        activation: 'relu',
      })
      const pool = new MaxPool2d(options)
      const x = wave([3, 7, 8, 2])
      const gradientsOf = (model: Module) => {
        const recording = recordModule(model, x, { needsInputGradient: true })
        const gradients = new Map<string, Tensor>()
        const dx = recording.backward(wave(recording.value.shape, 1), sumInto(gradients))!
        return [recording.value, dx, ...gradients.values()].map((tensor) => [...tensor.dataSync()])
      }
      const apart = new Sequential({ conv: new Sequential({ conv }), pool })
      expect(gradientsOf(new Sequential({ conv, pool }))).toEqual(gradientsOf(apart))
    },
  )

  it('Flatten turns each row of a batch into a vector', () => {
    expect(new Flatten().forward(wave([2, 3, 4, 5])).shape).toEqual([2, 60])
    expect(new Flatten().forward(tf.zeros([0, 3, 4, 5])).shape).toEqual([0, 60])
  })
})

/** Compares some gradients with difference quotients of the sum of some multiples of the outputs. */
function expectSlopes(module: Module, shape: number[]): void {
  const x = wave(shape)
  const pass = recordModule(module, x, { needsInputGradient: true })
  const dy = wave(pass.value.shape, 2)
  const gradients = new Map<string, Float32Array>()
  const dx = pass.backward(dy, ({ name }, gradient) => {
    gradients.set(name, gradient.dataSync<'float32'>().slice())
  })!
  const total = (input: Tensor) =>
    tf.tidy(() => tf.sum(tf.mul(module.forward(input), dy)).dataSync()[0]!)
  const slope = (
    values: Float32Array,
    at: number,
    loss: (changed: Tensor) => number,
    of: number[],
  ) => {
    const [more, less] = [values.slice(), values.slice()]
    more[at]! += 0.01
    less[at]! -= 0.01
    return (loss(tf.tensor(more, of)) - loss(tf.tensor(less, of))) / 0.02
  }
  for (const at of [0, 7, 13]) {
    const values = x.dataSync<'float32'>().slice()
    expect(dx.dataSync()[at]).toBeCloseTo(slope(values, at, total, shape), 2)
    for (const parameter of module.parameters) {
      const { name, value } = parameter
      const i = at % value.size
      const loss = (changed: Tensor) => {
        parameter.value = changed
        const result = total(x)
        parameter.value = value
        return result
      }
      const wanted = slope(value.dataSync<'float32'>().slice(), i, loss, value.shape)
      expect(gradients.get(name)![i]).toBeCloseTo(wanted, 2)
    }
  }
}
