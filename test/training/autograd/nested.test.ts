import { Conv2d, LayerNorm, Linear, loadBackend, tf, type Tensor } from '@tsrun/training'

describe.each(['wasm', 'cpu'] as const)('a gradient of a gradient on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it.each([
    ['Linear', () => new Linear({ name: 'l', inputs: 3, outputs: 2 }), [2, 3]],
    [
      'Linear with ReLU',
      () => new Linear({ name: 'l', inputs: 3, outputs: 2, activation: 'relu' }),
      [2, 3],
    ],
    ['Conv2d', () => new Conv2d({ name: 'c', inputs: 1, outputs: 2, kernel: 2 }), [1, 3, 3, 1]],
    [
      'Conv2d with ReLU',
      () => new Conv2d({ name: 'c', inputs: 1, outputs: 2, kernel: 2, activation: 'relu' }),
      [1, 3, 3, 1],
    ],
    [
      'LayerNorm',
      () => {
        const layer = new LayerNorm({ name: 'n', width: 3 })
        layer.parameters[0].value = tf.tensor([1, -2, 3])
        return layer
      },
      [2, 3],
    ],
  ])('sees the values that the first gradient of %s depends on', (_, create, shape) => {
    const layer = create()
    const x = tf.randomNormal(shape, 0, 1, 'float32', 1)
    const [weight] = layer.parameters
    const { value: initial } = weight
    // The gradient of sum(f(x)^2) has degree 2 in the weight, so its square has degree 4.
    const first = tf.grad((input: Tensor) => tf.sum(tf.square(layer.forward(input))))
    const penalty = (value: Tensor): Tensor => {
      weight.value = value
      return tf.sum(tf.square(first(x)))
    }
    const second = tf.grad(penalty)(initial)
    // Euler: w . gradient = degree x value.
    const [product] = tf.sum(tf.mul(second, initial)).dataSync()
    const [value] = penalty(initial).dataSync()
    expect(value).toBeGreaterThan(0)
    expect(product! / value!).toBeCloseTo(4, 4)
  })
})
