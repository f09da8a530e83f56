import {
  Embedding,
  FeedForward,
  gelu,
  LayerNorm,
  loadBackend,
  record,
  RMSNorm,
  tf,
  type Module,
  type Tensor,
} from '@tsrun/training'
import { Head, tableParameter } from '@tsrun/training/parts'

const input = () =>
  tf.tensor3d(
    Float32Array.from({ length: 2 * 3 * 8 }, (_, i) => 2 * Math.sin(1 + 1.7 * i)),
    [2, 3, 8],
  )

/** The gradient of the sum of some multiples of the outputs. */
function gradients(module: Module) {
  const x = input()
  const dy = tf.tensor3d(
    Float32Array.from({ length: 2 * 3 * 8 }, (_, i) => Math.cos(i)),
    [2, 3, 8],
  )
  const pass = record((h) => module.forward(h), x, module.parameters, { needsInputGradient: true })
  const found: Record<string, Float32Array> = {}
  const dx = pass.backward(dy, ({ name }, gradient) => {
    found[name] = gradient.dataSync<'float32'>().slice()
    gradient.dispose()
  })!
  found['x'] = dx.dataSync<'float32'>().slice()
  pass.dispose()
  tf.dispose([x, dy, dx])
  return found
}

function expectClose(actual: Record<string, Float32Array>, wanted: Record<string, Float32Array>) {
  expect(Object.keys(actual).sort()).toEqual(Object.keys(wanted).sort())
  for (const [name, values] of Object.entries(wanted)) {
    values.forEach((value, i) => {
      expect(Math.abs(actual[name]![i]! - value)).toBeLessThan(1e-5 + 1e-5 * Math.abs(value))
    })
  }
}

/** The same of operations of TensorFlow.js alone. */
const plain = {
  layerNorm: (parameters: Module['parameters']) => (x: Tensor) => {
    const { mean, variance } = tf.moments(x, -1, true)
    const normal = tf.div(tf.sub(x, mean), tf.sqrt(tf.add(variance, 1e-5)))
    return tf.add(tf.mul(normal, parameters[0]!.value), parameters[1]!.value)
  },
  rmsNorm: (parameters: Module['parameters']) => (x: Tensor) => {
    const square = tf.mean(tf.square(x), -1, true)
    return tf.mul(tf.div(x, tf.sqrt(tf.add(square, 1e-5))), parameters[0]!.value)
  },
  gelu: () => (x: Tensor) => {
    const inner = tf.mul(tf.add(x, tf.mul(tf.pow(x, 3), 0.044715)), Math.sqrt(2 / Math.PI))
    return tf.mul(tf.mul(x, 0.5), tf.add(tf.tanh(inner), 1))
  },
  head: (parameters: Module['parameters']) => (x: Tensor) => {
    const rows = tf.matMul(tf.reshape(x, [6, 8]), tf.transpose(parameters[0]!.value))
    return tf.reshape(rows, [2, 3, 8])
  },
}

describe.each(['wasm', 'cpu'] as const)('on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it.each([
    { name: 'LayerNorm', make: () => new LayerNorm({ name: 'n', width: 8 }), as: plain.layerNorm },
    { name: 'RMSNorm', make: () => new RMSNorm({ name: 'n', width: 8 }), as: plain.rmsNorm },
    { name: 'gelu', make: () => ({ parameters: [], forward: gelu }), as: plain.gelu },
    { name: 'Head', make: () => new Head(tableParameter('w', [8, 8], 0, 1)), as: plain.head },
  ])('$name follows its formula, forward and backward', ({ make, as }) => {
    const module = make() as Module
    const other = { parameters: module.parameters, forward: as(module.parameters) }
    const before = tf.memory().numTensors
    const [own, wanted] = [module, other].map((each) =>
      tf.tidy(() => each.forward(input()).dataSync<'float32'>().slice()),
    )
    expectClose({ y: own! }, { y: wanted! })
    expectClose(gradients(module), gradients(other))
    expect(tf.memory().numTensors).toBe(before)
  })

  it('an embedding sums the gradients of each token', () => {
    const table = new Embedding({ name: 'table', count: 4, width: 2 })
    const ids = tf.tensor2d([1, 3, 1, 1], [2, 2], 'int32')
    const pass = record((x) => table.forward(x), ids, table.parameters, {
      needsInputGradient: false,
    })
    expect(pass.value.shape).toEqual([2, 2, 2])
    let found: number[] = []
    pass.backward(tf.ones([2, 2, 2]), (_, gradient) => {
      found = [...gradient.dataSync()]
    })
    expect(found).toEqual([0, 0, 3, 3, 0, 0, 1, 1])
    pass.dispose()
  })
})

it('a feed-forward network has the parameter names of GPT-2', async () => {
  await loadBackend('wasm')
  const { parameters } = new FeedForward({ name: 'h.0.mlp', width: 4 })
  expect(parameters.map(({ name, shape }) => `${name} ${shape.join('x')}`)).toEqual([
    'h.0.mlp.c_fc.weight 4x16',
    'h.0.mlp.c_fc.bias 16',
    'h.0.mlp.c_proj.weight 16x4',
    'h.0.mlp.c_proj.bias 4',
  ])
})
