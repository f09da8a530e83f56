import { tensorflow } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

const { describe: describeIt } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

describeIt('on tensorflow', () => {
  const warm = new WarmProcess({ ...tensorflow })
  afterAll(() => {
    warm.end()
  })
  const run = async (body: string) =>
    await warm.run(`
      const { CausalSelfAttention, Conv2d, GELU, loadBackend, record, RMSNorm, SiLU, tf } = training
      await loadBackend('tensorflow')
      ${body}`)

  it('attention takes a batch of no sequences, and scores that overflow at later positions', async () => {
    const { empty, finite } = (await run(`
      const layer = new CausalSelfAttention({ name: 'a', width: 2, heads: 1, deviation: 1 })
      const shapes = (x) => {
        const pass = record((input) => layer.forward(input), x, layer.parameters, { needsInputGradient: true })
        const dx = pass.backward(tf.onesLike(pass.value), (_, gradient) => gradient.dispose())
        const found = [pass.value.shape, dx.shape]
        pass.dispose()
        return found
      }
      // Products of these positions are infinite, or NaN.
      const x = tf.tensor3d([1, 2, 3, 4, 1e30, -1e30, 1e30, 1e30], [1, 4, 2])
      return {
        empty: shapes(tf.zeros([0, 3, 2])),
        finite: [...tf.all(tf.isFinite(layer.forward(x)), -1).dataSync()],
      }`)) as { empty: number[][]; finite: number[] }
    expect(empty).toEqual([
      [0, 3, 2],
      [0, 3, 2],
    ])
    expect(finite.slice(0, 2)).toEqual([1, 1])
  })

  it.each([
    ['a convolution with ReLU', 'new Conv2d({ ...sizes, activation: "relu" })'],
    ['GELU', 'new GELU()'],
    ['SiLU', 'new SiLU()'],
    ['RMSNorm', 'new RMSNorm({ name: "n", width: 1, epsilon: 1 })'],
  ])('%s has the gradients of gradients of the cpu backend', async (_, create) => {
    const [found, expected] = (await run(`
      const sizes = { name: 'c', inputs: 1, outputs: 2, kernel: 2 }
      const results = []
      for (const name of ['tensorflow', 'cpu']) {
        await loadBackend(name)
        const layer = ${create}
        const first = tf.grad((x) => tf.sum(tf.square(layer.forward(x))))
        const second = tf.grad((x) => tf.sum(tf.square(first(x))))
        results.push([...second(tf.tensor4d([1, -2, 3, 4, 0.5, -0.3, 2, 1, -1], [1, 3, 3, 1])).dataSync()])
      }
      return results`)) as [number[], number[]]
    expect(Math.max(...expected.map(Math.abs))).toBeGreaterThan(0.1)
    for (const [i, value] of expected.entries()) expect(found[i]).toBeCloseTo(value, 3)
  })
})
