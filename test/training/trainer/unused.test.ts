import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  createParameter,
  init,
  loadBackend,
  moduleOf,
  sequential,
  SGD,
  tf,
  trainer,
  type MeshShape,
  type Tensor,
  type TrainerOptions,
} from '@tsrun/training'
import { given } from './support/small-training.ts'

beforeAll(() => loadBackend('wasm'))

type Layout = readonly [shape: MeshShape, options: TrainerOptions]

const layouts: readonly Layout[] = [
  [{}, {}],
  [{}, { accumulate: 2 }],
  [{ dp: 2 }, {}],
  [{ dp: 2 }, { zero: 1 }],
  [{ dp: 2 }, { zero: 2 }],
  [{ dp: 2 }, { zero: 3 }],
  [{ pp: 2 }, { microbatches: 2 }],
  [
    { pp: 2, dp: 2 },
    { microbatches: 2, zero: 2 },
  ],
]

/**
 * Layers x -> x + x `extra`; steps in `skips` leave out the second term in one layer.
 *
 * @returns the losses of 4 steps, or errors, and the values in the end
 */
async function train([shape, options]: Layout, skips: readonly number[]) {
  const size = Object.values(shape).reduce((product, axis) => product * axis, 1)
  const ranks = await runWorld({ size, seed: 1 }, async (group) => {
    let step = 0
    const layer = (name: string, isSkipped: () => boolean) => () =>
      moduleOf(
        { extra: createParameter(`${name}.extra`, [2, 2], init.constant(0.5)) },
        (x: Tensor, { extra }) => (isSkipped() ? tf.clone(x) : tf.add(x, tf.matMul(x, extra))),
      )
    const recipe = sequential({
      a: layer('a', () => false),
      b: layer('b', () => skips.includes(step)),
    })
    const sizes: Record<string, number> = { dp: 1, ...shape }
    const mesh = await initDeviceMesh(sizes, group)
    const run = await trainer(recipe, {
      ...{ mesh, optimizer: new SGD({ learningRate: 0.1, momentum: 0.9 }) },
      ...options,
    })
    const seen: (number | string)[] = []
    for (; step < 4; step++) {
      const rows = 4 / run.share[1]
      const inputs = Float32Array.from({ length: 2 * rows }, (_, i) =>
        Math.sin(step + i + 2 * rows * run.share[0]),
      )
      const labels = Int32Array.from({ length: rows }, (_, i) => (i + rows * run.share[0]) % 2)
      const result = run.step({ size: rows, inputs, labels })
      seen.push(
        await result.then(
          ({ loss }) => loss,
          (error: unknown) => (error as { code: string }).code,
        ),
      )
    }
    const values = await run.gathered(() =>
      run.parameters.flatMap(({ value }) => [...value.dataSync()]),
    )
    run.dispose()
    return { seen, values, share: run.share[0] }
  })
  const { seen } = ranks[0]!
  const values = ranks.filter(({ share }) => share === 0).flatMap((rank) => rank.values)
  for (const rank of ranks) expect(rank.seen).toEqual(seen)
  return { seen, values }
}

it.each(layouts)(
  'a later step may leave out a parameter, as with one process: %j %j',
  async (...layout) => {
    const alone = await train([{}, {}], [1, 3])
    const found = await train(layout, [1, 3])
    expect(found.seen.every((loss) => typeof loss === 'number')).toBe(true)
    found.seen.forEach((loss, i) => {
      expect(loss).toBeCloseTo(alone.seen[i] as number, 5)
    })
    found.values.forEach((value, i) => {
      expect(value).toBeCloseTo(alone.values[i]!, 5)
    })
  },
)

it.each(layouts)(
  'the first step names parameters that no rank used, and the next continues: %j %j',
  async (...layout) => {
    const { seen } = await train(layout, [0])
    expect(seen[0]).toBe('ERR_TSR_UNUSED_PARAMETERS')
    for (const loss of seen.slice(1)) expect(loss).toEqual(expect.any(Number))
  },
)

it.each(layouts)("unused: 'zeros' reports no unused parameters: %j %j", async (shape, options) => {
  const { seen } = await train([shape, { ...options, unused: 'zeros' }], [0, 1])
  for (const loss of seen) expect(loss).toEqual(expect.any(Number))
})

it('an error about an unused parameter names it and two ways to continue', async () => {
  const [message] = await runWorld({ size: 1 }, async (mesh) => {
    const forgotten = createParameter('forgotten', [1], init.zeros)
    const used = createParameter('used', [2, 2], init.ones)
    const model = moduleOf({ used, forgotten }, (x: Tensor, { used }) => tf.matMul(x, used))
    const run = await trainer(model, { mesh, optimizer: new SGD({ learningRate: 1 }) })
    const step = run.step({ size: 1, inputs: Float32Array.of(1, 2), labels: Int32Array.of(0) })
    return await step.then(String, (error: unknown) => (error as Error).message)
  })
  expect(message).toContain('did not use forgotten')
  expect(message).toContain('frozen')
  expect(message).toContain("`unused` to 'zeros'")
})

it('accumulate is refused for a pipeline, with advice to use microbatches', async () => {
  const [message] = await runWorld({ size: 2 }, async (group) => {
    const mesh = await initDeviceMesh({ dp: 1, pp: 2 }, group)
    const recipe = sequential({ a: () => given(undefined), b: () => given(undefined) })
    return await trainer(recipe, { mesh, accumulate: 2 }).then(
      String,
      (error: unknown) => (error as Error).message,
    )
  })
  expect(message).toMatch(/accumulate is 2, with several stages; expected microbatches/)
})

describe('a parameter that two stages of a pipeline share', () => {
  const stage = (name: string, isSkipped: () => boolean) => () => {
    const own = createParameter(`${name}.own`, [2, 2], init.constant(0.5))
    const tied = createParameter('tied', [2, 2], init.constant(0.3))
    return moduleOf({ own, tied }, (x: Tensor, { own, tied }) => {
      const y = tf.matMul(x, own)
      return isSkipped() ? y : tf.add(y, tf.matMul(x, tied))
    })
  }

  /** Returns the error and the value of the shared parameter after each of three steps. */
  async function trainTied(skipped: number): Promise<(readonly [unknown, string])[]> {
    const [seen] = await runWorld({ size: 2, seed: 1 }, async (group) => {
      let step = 0
      const isSkipped = () => step === skipped
      const recipe = sequential({ a: stage('a', isSkipped), b: stage('b', isSkipped) })
      const mesh = await initDeviceMesh({ dp: 1, pp: 2 }, group)
      const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
      const run = await trainer(recipe, { mesh, microbatches: 2, optimizer })
      const found: (readonly [unknown, string])[] = []
      for (; step < 3; step++) {
        const inputs = Float32Array.of(1, 2, 3, 4 + step)
        const result = run.step({ size: 2, inputs, labels: Int32Array.of(0, 1) })
        const error = await result.then(
          () => undefined,
          (failure: unknown) => (failure as { code: string }).code,
        )
        const { value } = run.parameters.find(({ name }) => name === 'tied')!
        found.push([error, value.dataSync().join()])
      }
      run.dispose()
      return found
    })
    return seen!
  }

  it('keeps its value in a step in which no stage uses it', async () => {
    const [first, second, third] = (await trainTied(1)).map(([, value]) => value)
    expect(second).toBe(first)
    expect(third).not.toBe(second)
  })

  it('is reported if no stage uses it in the first step', async () => {
    expect((await trainTied(0)).map(([error]) => error)).toEqual([
      ...['ERR_TSR_UNUSED_PARAMETERS', undefined, undefined],
    ])
  })
})
