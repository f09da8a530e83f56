import { runModule } from '../backend/support/process.ts'
import { tensorflow } from '../backend/support/tensorflow.ts'
import { vulkan } from '../backend/support/vulkan.ts'
import { needing } from '../../needs.ts'

/** Backends whose tensors the host does not reach, with what a process needs for them. */
const backends = [
  { name: 'tensorflow', env: tensorflow, what: 'TensorFlow (npx tsrun setup tensorflow)' },
  { name: 'webgpu', env: vulkan, what: 'Vulkan driver' },
] as const

/** Logs what comes of optimizers and of a clipped gradient; the same script for all backends. */
const script = `
  const { Adam, AdamW, SGD, clipGradients, tensorFrom, tf } = training
  const makers = {
    sgd: () => new SGD({ learningRate: 0.1 }),
    momentum: () => new SGD({ learningRate: 0.1, momentum: 0.9 }),
    nesterov: () =>
      new SGD({ learningRate: 0.1, momentum: 0.9, weightDecay: 0.2, nesterov: true }),
    adam: () => new Adam({ learningRate: 0.05 }),
    'adam decay': () => new Adam({ learningRate: 0.05, weightDecay: 0.2 }),
    'adam slow': () => new Adam({ learningRate: 0.05, betas: [0.9, 0.9999] }),
    adamw: () => new AdamW({ learningRate: 0.05, weightDecay: 0.2 }),
  }
  const gradient = (step) => {
    const values = Float32Array.from({ length: 6 }, (_, i) => Math.sin(3 * step + i))
    return tensorFrom(values, [2, 3])
  }
  const outcome = {}
  for (const [name, make] of Object.entries(makers)) {
    const before = tf.memory().numTensors
    const parameter = { name: 'p', shape: [2, 3], value: tf.ones([2, 3]) }
    const former = make()
    for (let step = 0; step < 5; step++) former.step([parameter], new Map([['p', gradient(step)]]))
    const optimizer = make()
    optimizer.loadState(await former.state())
    for (let step = 5; step < 10; step++) {
      optimizer.step([parameter], new Map([['p', gradient(step)]]))
    }
    const { steps, values } = (await optimizer.state()).get('p')
    const vectors = Object.entries(values).map(([key, vector]) => [key, [...vector]])
    const p = [...(await parameter.value.data())]
    parameter.value.dispose()
    former.dispose()
    optimizer.dispose()
    const left = tf.memory().numTensors - before
    outcome[name] = { steps, ...Object.fromEntries(vectors), p, left }
  }
  const gradients = new Map([['p', gradient(1)], ['q', tf.fill([2], -3)]])
  const parameters = [{ name: 'p', shape: [2, 3] }, { name: 'q', shape: [2] }]
  const before = tf.memory().numTensors
  const total = await clipGradients(parameters, gradients, { maxNorm: 1 })
  const left = tf.memory().numTensors - before
  outcome.clipping = { left, total, p: [...(await gradients.get('p').data())] }
  console.log(JSON.stringify(outcome))`

type Outcome = Record<string, Record<string, number | number[]>>

async function outcomeOn(
  backend: string,
  env: Record<string, string> | undefined,
): Promise<Outcome> {
  const source = `await training.loadBackend('${backend}')\n${script}`
  const { code, stdout, stderr } = await runModule(source, env)
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return JSON.parse(stdout) as Outcome
}

for (const { name, env, what } of backends) {
  needing(env !== undefined, what).describe(`optimizers and clipping on ${name}`, () => {
    it('optimizer updates on a device equal those on the host, and their state can be read', async () => {
      const [expected, device] = [await outcomeOn('cpu', {}), await outcomeOn(name, env)]
      expect(Object.keys(device)).toEqual(Object.keys(expected))
      for (const { left } of Object.values(device)) expect(left).toBe(0)
      for (const [key, vectors] of Object.entries(expected)) {
        for (const [vector, values] of Object.entries(vectors)) {
          const found = [device[key]![vector]!].flat()
          expect(found).toHaveLength([values].flat().length)
          ;[values].flat().forEach((value, i) => {
            expect(Math.abs(found[i]! - value)).toBeLessThan(1e-5)
          })
        }
      }
    })

    it('optimizer updates on a device do not change clones of a parameter or its source array', async () => {
      const source = `
      const { Adam, SGD, tf } = training
      await training.loadBackend('${name}')
      const makers = [
        () => new SGD({ learningRate: 0.1 }),
        () => new SGD({ learningRate: 0.1, momentum: 0.9 }),
        () => new Adam(),
      ]
      const length = 2 ** 14
      const array = new Float32Array(new WebAssembly.Memory({ initial: 1 }).buffer).fill(1)
      const outcomes = []
      for (const make of makers) {
        const parameter = { name: 'p', shape: [length], value: tf.tensor(array) }
        const clone = tf.clone(parameter.value)
        const optimizer = make()
        for (let step = 0; step < 3; step++) {
          const gradient = tf.fill([length], 0.5)
          const again = tf.clone(gradient)
          optimizer.step([parameter], new Map([['p', gradient]]))
          outcomes.push((await again.data()).every((value) => value === 0.5))
        }
        outcomes.push(array.every((value) => value === 1))
        outcomes.push((await clone.data()).every((value) => value === 1))
        outcomes.push((await parameter.value.data()).every((value) => value < 1))
      }
      console.log(JSON.stringify(outcomes))`
      const { code, stdout, stderr } = await runModule(source, env)
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
      expect(JSON.parse(stdout)).toEqual(Array.from({ length: 18 }, () => true))
    })
  })
}
