import { jest } from '@jest/globals'
import { runModule } from './support/process.ts'
import { vulkan } from './support/vulkan.ts'

jest.setTimeout(120_000)

// A hidden layer, cut in two halves of its units: what a tensor parallel layer computes on two
// ranks. A collective adds up the halves' outputs, and in the backward pass their input gradients.
const halves = `
  const { tf, record, writeTo, tensorFrom } = training
  await training.loadBackend()
  const { initProcessGroup } = await import('@tsrun/distributed')
  const group = await initProcessGroup()
  const x = tf.tensor2d([[0.5, -1, 2], [1, 0.25, -0.5]])
  const parameter = (name, shape, seed) => ({
    name, shape, value: tf.randomUniform(shape, -1, 1, 'float32', seed),
  })
  const weights = [parameter('a', [3, 4], 1), parameter('b', [3, 4], 2)]
  const hidden = (w) => (h) => tf.tanh(tf.matMul(h, w.value))
  const buffer = group.alloc('float32', 8)
  const print = async (tensors) => {
    for (const tensor of tensors) console.log(JSON.stringify([...await tensor.data()]))
  }
`

/** Cut at the collective: each segment has its own recording, and what lies between is awaited. */
const cut = `${halves}
  const segments = weights.map((w) => record(hidden(w), x, [w], { needsInputGradient: true }))
  const parts = []
  for (const segment of segments) {
    await writeTo(segment.value, buffer)
    await group.allReduce(buffer)
    parts.push(tensorFrom(buffer, [2, 4]))
  }
  const sum = tf.add(parts[0], parts[1])
  const loss = record((y) => tf.sum(tf.square(y)), sum, [], { needsInputGradient: true })
  const dy = loss.backward(tf.scalar(1), () => undefined)
  await writeTo(dy, buffer)
  await group.allReduce(buffer)
  const gradients = new Map()
  const shared = tensorFrom(buffer, [2, 4])
  const dx = segments.map((segment) =>
    segment.backward(shared, ({ name }, gradient) => gradients.set(name, gradient)))
  await print([loss.value, gradients.get('a'), gradients.get('b'), tf.add(dx[0], dx[1])])
  await group.destroy()
`

/** In one piece: the collective blocks inside a gradient function. */
const whole = `${halves}
  const reduce = tf.customGrad((y) => {
    const sum = (tensor) => {
      buffer.set(tensor.dataSync())
      group.allReduceSync(buffer)
      return tensorFrom(buffer, [2, 4])
    }
    return { value: sum(y), gradFunc: (dy) => sum(dy) }
  })
  const forward = (input) =>
    tf.sum(tf.square(tf.add(reduce(hidden(weights[0])(input)), reduce(hidden(weights[1])(input)))))
  const recording = record(forward, x, weights, { needsInputGradient: true })
  const gradients = new Map()
  const dx = recording.backward(tf.scalar(1), ({ name }, gradient) => gradients.set(name, gradient))
  await print([recording.value, gradients.get('a'), gradients.get('b'), dx])
  await group.destroy()
`

const numbers = (stdout: string): number[] =>
  stdout
    .trim()
    .split('\n')
    .flatMap((line) => JSON.parse(line) as number[])

const webgpu = { ...vulkan, TSRUN_BACKEND: 'webgpu' }
const withDriver = vulkan === undefined ? describe.skip : describe

if (vulkan === undefined) {
  it('skipped: no Vulkan driver', () => {
    expect(vulkan).toBeUndefined()
  })
}

withDriver('a collective within a model', () => {
  it('inside a gradient needs values at once, which webgpu says it has not', async () => {
    const { code, stderr } = await runModule(whole, webgpu)
    expect(code).toBe(1)
    expect(stderr).toContain('ERR_TSR_SYNC_READ')
    expect(stderr).toContain('record each segment, and await the collective')
  })

  it('between segments gives what the model gives in one piece on cpu', async () => {
    const expected = await runModule(whole, { TSRUN_BACKEND: 'cpu' })
    const found = await runModule(cut, webgpu)
    expect({ code: found.code, stderr: found.stderr }).toEqual({ code: 0, stderr: '' })
    const [a, b] = [numbers(found.stdout), numbers(expected.stdout)]
    expect(a).toHaveLength(1 + 12 + 12 + 6)
    a.forEach((value, i) => {
      expect(Math.abs(value - b[i]!)).toBeLessThan(1e-5)
    })
  })
})
