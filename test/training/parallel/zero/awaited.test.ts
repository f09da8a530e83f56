import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  disposeModule,
  fullyShard,
  loadBackend,
  SGD,
  tf,
  type FullyShard,
  type FullyShardOptions,
  type Module,
} from '@tsrun/training'
import { errorOf } from '../../../distributed/support/outcome.ts'
import { give, onPoints } from '../data/support/points.ts'
import { build, part, runPass, shareOf, wholeValues } from './support/training.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

const ones = () => tf.ones([2, 12])
const sgd = () => new SGD({ learningRate: 0.1 })

/** Runs something on a sharded model whose gradients are there. */
async function onGradients(
  group: ProcessGroup,
  options: FullyShardOptions,
  run: (sharded: FullyShard<Module>, gradients: Map<string, Float32Array>) => Promise<void>,
): Promise<void> {
  const sharded = await fullyShard(build(), group, options)
  await runPass(part(0, ...shareOf(group.rank, group.size)), (inputs) => sharded.record(inputs))
  await run(sharded, await sharded.gradients())
  await sharded.gather()
  sharded.dispose()
  disposeModule(sharded.module)
}

describe.each([1, 2, 3] as const)('ZeRO stage %i', (stage) => {
  it('refuses other calls during a step, and accepts them after it', async () => {
    await runWorld({ size: 2, seed: 1 }, (group) =>
      onGradients(group, { stage }, async (sharded, gradients) => {
        const input = ones()
        const step = sharded.step(sgd(), gradients)
        // All at once, because the step may end soon.
        const errors = await Promise.all([
          errorOf(() => sharded.record(input)),
          errorOf(() => sharded.gradients()),
          errorOf(() => sharded.step(sgd(), gradients)),
          errorOf(() => sharded.gather()),
        ])
        for (const error of errors) {
          expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
          expect(error?.message).toContain('made before step() has ended')
        }
        await step
        const after = await wholeValues(sharded)
        const recording = await sharded.record(input)
        recording.dispose()
        input.dispose()
        expect(await wholeValues(sharded)).toEqual(after)
      }),
    )
  })

  it('refuses gradients during a step', async () => {
    await runWorld({ size: 2, seed: 2 }, async (group) => {
      const sharded = await fullyShard(build(), group, { stage })
      const [parameter] = sharded.module.parameters
      await runPass(part(0, ...shareOf(group.rank, 2)), (inputs) => sharded.record(inputs))
      const step = sharded.step(sgd(), await sharded.gradients())
      const gradient = tf.keep(tf.zeros([...parameter!.shape]))
      const error = await errorOf(() => {
        sharded.onGradient(parameter!, gradient)
        return Promise.resolve()
      })
      expect(error?.message).toContain('a backward pass is made before step() has ended')
      expect(gradient.isDisposed).toBe(true)
      await step
      sharded.dispose()
    })
  })
})

describe.each([1, 2] as const)('ZeRO stage %i', (stage) => {
  it('refuses other calls after an optimizer has updated only the shards', async () => {
    await runWorld({ size: 2, seed: 3 }, (group) =>
      onGradients(group, { stage }, async (sharded, gradients) => {
        const input = ones()
        sgd().step(sharded.shards, gradients)
        for (const call of [() => sharded.record(input), () => sharded.gradients()]) {
          const error = await errorOf(call)
          expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
          expect(error?.message).toContain('sharded.step(optimizer, gradients)')
        }
        // what it has made is not lost
        await sharded.step(sgd(), new Map())
        const recording = await sharded.record(input)
        recording.dispose()
        input.dispose()
      }),
    )
  })
})

describe('dataParallel', () => {
  it('refuses a second call of gradients(), and new gradients, during the first call', async () => {
    await runWorld({ size: 2, seed: 4 }, (group) =>
      onPoints(group, ['a'], {}, async (replica) => {
        give(replica, 'a', 1)
        const first = replica.gradients()
        const error = await errorOf(() => replica.gradients())
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        expect(error?.message).toContain('gradients() is made before gradients() has ended')
        expect(() => {
          give(replica, 'a', 2)
        }).toThrow('a backward pass is made before gradients() has ended')
        tf.dispose([...(await first).values()])
      }),
    )
  })
})
