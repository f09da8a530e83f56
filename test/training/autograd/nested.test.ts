import { Conv2d, Linear, loadBackend, tf, type Tensor } from '@tsrun/training'

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
  ])('sees the values that the first gradient of %s depends on', (_, create, shape) => {
    const layer = create()
    const x = tf.randomNormal(shape, 0, 1, 'float32', 1)
    // The first gradient of sum(f(x)^2) is linear in x where the ReLU does not change.
    const first = tf.grad((input: Tensor) => tf.sum(tf.square(layer.forward(input))))
    const penalty = (input: Tensor): Tensor => tf.sum(tf.square(first(input)))
    const second = tf.grad(penalty)(x)
    // Euler: a form of degree 2 has x . gradient = 2 value.
    const [product] = tf.sum(tf.mul(second, x)).dataSync()
    const [value] = penalty(x).dataSync()
    expect(value).toBeGreaterThan(0)
    expect(product! / value!).toBeCloseTo(2, 4)
  })
})
