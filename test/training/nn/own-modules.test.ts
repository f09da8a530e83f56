import { jest } from '@jest/globals'
import {
  createParameter,
  crossEntropy,
  Flatten,
  init,
  Linear,
  loadBackend,
  moduleOf,
  record,
  recordLoss,
  recordModule,
  Sequential,
  sequential,
  tf,
  type Module,
} from '@tsrun/training'

const given = (value: unknown) => value as never
const linear = (name: string, inputs: number, outputs: number) =>
  new Linear({ name, inputs, outputs, activation: 'relu' })

it('a module created before any backend is loaded asks for a backend', () => {
  expect(() => linear('early', 2, 2)).toThrow(
    expect.objectContaining({ code: 'ERR_TSR_BACKEND_NOT_LOADED' }),
  )
})

describe.each(['wasm', 'cpu'] as const)('on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  const gradientsOf = (module: Module, x = tf.ones([2, 3])) => {
    const before = tf.memory().numTensors
    const pass = recordModule(module, x, { needsInputGradient: true })
    const output = [...pass.value.dataSync()]
    const dy = tf.ones(pass.value.shape)
    const found: Record<string, number[]> = {}
    const dx = pass.backward(dy, ({ name }, gradient) => {
      found[name] = [...gradient.dataSync()]
      gradient.dispose()
    })!
    found['x'] = [...dx.dataSync()]
    pass.dispose()
    tf.dispose([dy, dx])
    expect(tf.memory().numTensors).toBe(before)
    return { output, found }
  }

  describe('Linear', () => {
    it.each([
      ['linear', (z: number) => z],
      ['relu', (z: number) => Math.max(0, z)],
      [
        'gelu',
        (z: number) => (z / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (z + 0.044715 * z ** 3))),
      ],
      ['silu', (z: number) => z / (1 + Math.exp(-z))],
      ['tanh', Math.tanh],
      ['sigmoid', (z: number) => 1 / (1 + Math.exp(-z))],
    ] as const)('applies %s, with and without a bias', (activation, formula) => {
      for (const bias of [true, false]) {
        const layer = new Linear({ name: 'l', inputs: 3, outputs: 4, activation, bias })
        expect(layer.parameters.map(({ name }) => name)).toEqual(
          bias ? ['l.weight', 'l.bias'] : ['l.weight'],
        )
        const w = layer.weight.value.dataSync()
        const x = tf.tensor2d([1, -2, 0.5], [1, 3])
        const { output, found } = gradientsOf(layer, x)
        const sums = [0, 1, 2, 3].map((k) => w[k]! - 2 * w[4 + k]! + 0.5 * w[8 + k]!)
        const slopes = sums.map((z) => (formula(z + 1e-5) - formula(z - 1e-5)) / 2e-5)
        sums.forEach((z, k) => {
          expect(output[k]).toBeCloseTo(formula(z), 5)
          expect(found['l.weight']![4 + k]).toBeCloseTo(-2 * slopes[k]!, 3)
        })
        const dx = slopes.reduce((sum, slope, k) => sum + slope * w[k]!, 0)
        expect(found['x']![0]).toBeCloseTo(dx, 3)
        const { output: rows } = gradientsOf(layer, tf.tensor3d([1, -2, 0.5], [1, 1, 3]))
        expect(rows).toEqual(output)
      }
    })

    it('explains an invalid input', () => {
      const layer = linear('l', 3, 4)
      expect(() => layer.forward(tf.ones([2, 5]))).toThrow(
        'the input of l.weight is a tensor of shape [2, 5]; expected float32 [..., 3]',
      )
      const x = tf.ones([2, 3])
      x.dispose()
      expect(() => layer.forward(x)).toThrow(/the input of l.weight is a disposed tensor/)
    })
  })

  describe('Sequential', () => {
    it('has the outputs and gradients of its modules in sequence', () => {
      const [a, b] = [linear('a', 3, 5), linear('b', 5, 2)]
      const plain: Module = {
        parameters: [...a.parameters, ...b.parameters],
        forward: (x) => b.forward(a.forward(x)),
      }
      const wanted = gradientsOf(plain)
      const stack = gradientsOf(new Sequential({ a, b }))
      const taped = gradientsOf(new Sequential({ flat: new Flatten(), a, b }))
      for (const { output, found } of [stack, taped]) {
        expect(Object.keys(found).sort()).toEqual(Object.keys(wanted.found).sort())
        expect(output).toEqual(wanted.output)
        for (const [name, values] of Object.entries(wanted.found)) {
          values.forEach((value, i) => {
            expect(found[name]![i]).toBeCloseTo(value, 5)
          })
        }
      }
    })

    it('is built in slices with the same parameters', () => {
      const recipe = sequential({
        a: (name) => linear(name, 3, 5),
        flat: () => new Flatten(),
        b: (name) => linear(name, 5, 2),
      })
      expect(recipe.layers).toBe(3)
      const parts = [recipe.slice(0, 1), recipe.slice(1, 3)]
      expect(parts.map(({ children }) => Object.keys(children))).toEqual([['a'], ['flat', 'b']])
      const values = (module: Module) =>
        module.parameters.map(({ name, value }) => [name, [...value.dataSync()]])
      expect(parts.flatMap(values)).toEqual(values(recipe.build()))
      expect(() => recipe.slice(2, 4)).toThrow(/range is \[2, 4\)/)
    })

    it('refuses modules that cannot be trained', () => {
      const twice = { a: linear('same', 3, 3), b: linear('same', 3, 3) }
      expect(() => new Sequential(twice)).toThrow(/two same.weight; expected one parameter/)
      expect(() => new Sequential(given({ a: 5 }))).toThrow(/the module a is 5/)
      expect(() => sequential({})).toThrow(/layers is empty/)
      expect(() => sequential(given({ a: linear('a', 1, 1) }))).toThrow(/layer a is/)
    })
  })

  describe('moduleOf', () => {
    const parameters = () => ({
      w: createParameter('w', [3, 1], init.heUniform()),
      b: createParameter('b', [1], init.constant(0.5)),
    })

    it('makes a module of a function', () => {
      const all = parameters()
      const model = moduleOf(all, (x, { w, b }) => tf.add(tf.matMul(x, w), b))
      const { output, found } = gradientsOf(model)
      const sum = all.w.value.dataSync<'float32'>().reduce((a, b) => a + b, 0.5)
      expect(output[0]).toBeCloseTo(sum, 6)
      expect(found['b']).toEqual([2])
      expect(found['w']).toEqual([2, 2, 2])
    })

    it('refuses objects that are not parameters', () => {
      expect(() => moduleOf(given({ w: tf.ones([2]) }), (x) => x)).toThrow(
        /the parameter w is .*; expected a parameter: createParameter/,
      )
    })
  })

  describe('createParameter', () => {
    it('draws values by name and seed', () => {
      const draw = (name: string, seed?: number) => [
        ...createParameter(name, [4, 5], init.uniform(2), seed).value.dataSync(),
      ]
      expect(draw('a')).toEqual(draw('a'))
      expect(draw('a')).not.toEqual(draw('b'))
      expect(draw('a')).not.toEqual(draw('a', 1))
    })

    it.each([
      ['uniform', init.uniform(2), 2 / Math.sqrt(3)],
      ['normal', init.normal(0.5), 0.5],
      ['heUniform', init.heUniform(), Math.sqrt(2 / 100)],
      ['xavierUniform', init.xavierUniform(), Math.sqrt(2 / 200)],
      ['zeros', init.zeros, 0],
    ] as const)(
      'draws %s values with the right mean and deviation',
      (name, initializer, deviation) => {
        const values = createParameter(name, [100, 100], initializer).value.dataSync<'float32'>()
        const mean = values.reduce((a, b) => a + b, 0) / values.length
        const square = values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / values.length
        expect(Math.abs(mean)).toBeLessThanOrEqual(0.05 * deviation)
        expect(Math.abs(Math.sqrt(square) - deviation)).toBeLessThanOrEqual(0.05 * deviation)
      },
    )

    it('refuses names, shapes and values that do not fit', () => {
      expect(() => createParameter('', [2], init.zeros)).toThrow(/expected the name of a parameter/)
      expect(() => createParameter('a', given(2), init.zeros)).toThrow(/the shape of a is 2/)
      expect(() => createParameter('a', [2], new Float32Array(3))).toThrow(/Float32Array\[2\]/)
    })

    it('refuses a size for which there is no memory before it draws a value', () => {
      const draw = jest.fn(init.zeros)
      expect(() => createParameter('a', [2 ** 20, 2 ** 20], draw)).toThrow()
      expect(draw).not.toHaveBeenCalled()
    })

    it('has a shape that functions of TensorFlow.js take', () => {
      const { shape, value } = createParameter('a', [2, 3], init.ones)
      expect(tf.reshape(tf.zeros([6]), shape).shape).toEqual(value.shape)
    })
  })

  describe('a recording', () => {
    it('refuses a tf.Variable as the value of a parameter', () => {
      const w = { name: 'w', shape: [3, 1], value: tf.variable(tf.ones([3, 1])) }
      const run = () =>
        record((x) => tf.matMul(x, w.value), tf.ones([1, 3]), [w], { needsInputGradient: false })
      expect(run).toThrow(/the value of w is .*tf.Variable.*createParameter/)
    })

    it('refuses disposed tensors', () => {
      const model = linear('l', 3, 4)
      const x = tf.ones([1, 3])
      x.dispose()
      const options = { needsInputGradient: false }
      expect(() => recordModule(model, x, options)).toThrow(/x is .*a disposed tensor/)
      const flat = new Sequential({ flat: new Flatten(), model })
      model.weight.value.dispose()
      expect(() => recordModule(flat, tf.ones([1, 3]), options)).toThrow(
        /the value of l.weight is .*a disposed tensor/,
      )
      expect(() => recordLoss(crossEntropy, x, tf.zeros([1], 'int32'))).toThrow(/outputs is/)
    })
  })
})
