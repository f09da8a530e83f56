import { runWorld } from '@tsrun/distributed'
import {
  AdamW,
  fullyShard,
  loadBackend,
  tf,
  type FullyShardOptions,
  type Parameter,
} from '@tsrun/training'
import { errorOf, thrownBy } from '../../../distributed/support/outcome.ts'
import { give, numbersOf, onPoints, Points } from './support/points.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

describe('gradients in 16 bits', () => {
  it.each(['float16', 'bfloat16'] as const)(
    'are averaged before they overflow: %s',
    async (wire) => {
      await runWorld({ size: 4, seed: 2 }, async (group) => {
        await onPoints(group, ['a'], { wire }, async (replica) => {
          give(replica, 'a', 20480)
          expect(numbersOf(await replica.gradients())).toEqual({ a: 20480 })
        })
        await onPoints(group, ['a'], { wire, reduction: 'token' }, async (replica) => {
          give(replica, 'a', 40960)
          expect(numbersOf(await replica.gradients(1 + group.rank))).toEqual({ a: 16384 })
        })
        for (const stage of [1, 2, 3] as const) {
          const module = new Points('a')
          const sharded = await fullyShard(module, group, { wire, stage })
          give(sharded, 'a', 20480)
          const numbers = numbersOf(await sharded.gradients())
          expect(numbers).toEqual(group.rank === 0 ? { a: 20480 } : {})
          sharded.dispose()
          module.dispose()
        }
      })
    },
  )
})

describe("unused: 'zeros'", () => {
  it('gives no gradient to a parameter that no rank has used, like a single process', async () => {
    await runWorld({ size: 2, seed: 3 }, (group) =>
      onPoints(group, ['a', 'b', 'c'], { unused: 'zeros' }, async (replica) => {
        for (let step = 0; step < 3; step++) {
          give(replica, 'a', 2)
          if (group.rank === 1) give(replica, 'b', 2)
          expect(numbersOf(await replica.gradients())).toEqual({ a: 2, b: 1 })
        }
        expect(numbersOf(await replica.gradients())).toEqual({})
      }),
    )
  })

  it.each([1, 2, 3] as const)(
    'gives no update to an unused parameter in ZeRO stage %i',
    async (stage) => {
      await runWorld({ size: 2, seed: 3 }, async (group) => {
        const module = new Points('a', 'b')
        for (const parameter of module.parameters) {
          parameter.value.dispose()
          parameter.value = tf.keep(tf.tensor1d([1]))
        }
        const sharded = await fullyShard(module, group, { stage, unused: 'zeros' })
        const optimizer = new AdamW({ learningRate: 0.1, weightDecay: 0.5 })
        if (group.rank === 1) give(sharded, 'a', 1)
        await sharded.step(optimizer, await sharded.gradients())
        await sharded.gather()
        expect(module.values['b']).toBe(1)
        expect(module.values['a']).toBeLessThan(0.9)
        sharded.release()
        sharded.dispose()
        optimizer.dispose()
        module.dispose()
      })
    },
  )

  it('does not change the model if there is no example at all', async () => {
    const options = { reduction: 'token', unused: 'zeros' } as const
    await runWorld({ size: 2 }, (group) =>
      onPoints(group, ['a'], options, async (replica) => {
        expect(numbersOf(await replica.gradients(0))).toEqual({})
        give(replica, 'a', 0)
        expect(numbersOf(await replica.gradients(0))).toEqual({ a: 0 })
      }),
    )
  })
})

const kinds: FullyShardOptions[] = [{ stage: 1 }, { stage: 2 }, { stage: 3 }]

describe('a replica', () => {
  it('reports in later calls that a step has failed', async () => {
    await runWorld({ size: 2, seed: 4 }, async (group) => {
      const check = async (replica: {
        readonly module: Points
        readonly onGradient: (...of: never[]) => void
        readonly gradients: () => Promise<unknown>
        readonly dispose: () => void
      }): Promise<void> => {
        give(replica as never, 'b', 1)
        const error = await errorOf(() => replica.gradients())
        expect(error).toMatchObject({
          code: 'ERR_TSR_UNUSED_PARAMETERS',
          facts: { parameters: 'a' },
        })
        const tensors = tf.memory().numTensors
        const late = thrownBy(() => {
          give(replica as never, 'b', 1)
        })
        expect(late).toMatchObject({ code: 'ERR_TSR_REPLICA_ENDED' })
        expect(late?.message).toContain('ERR_TSR_UNUSED_PARAMETERS')
        expect(tf.memory().numTensors).toBe(tensors)
        expect(await errorOf(() => replica.gradients())).toMatchObject({
          code: 'ERR_TSR_REPLICA_ENDED',
        })
        replica.dispose()
        replica.dispose()
        const ended = thrownBy(() => {
          give(replica as never, 'a', 1)
        })
        expect(ended).toMatchObject({ code: 'ERR_TSR_REPLICA_ENDED' })
        expect(ended?.message).toContain('disposed')
      }
      await onPoints(group, ['a', 'b'], { firstBucketBytes: 4 }, check)
      for (const options of kinds) {
        const module = new Points('a', 'b')
        await check(await fullyShard(module, group, options))
        module.dispose()
      }
    })
  })

  it('refuses a gradient with the wrong shape', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const odd = () => tf.keep(tf.tensor1d([1, 2]))
      await onPoints(group, ['a', 'b'], {}, async ({ module, onGradient }) => {
        const error = thrownBy(() => {
          onGradient(module.parameters[0]!, odd())
        })
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        expect(error?.message).toContain('the gradient of a')
        await Promise.resolve()
      })
      const module = new Points('a', 'b')
      const sharded = await fullyShard(module, group, { stage: 2 })
      const error = thrownBy(() => {
        sharded.onGradient(module.parameters[0]!, odd())
      })
      expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      sharded.dispose()
      module.dispose()
    })
  })

  it('lets passes write gradients directly into its buckets', async () => {
    await runWorld({ size: 2, seed: 5 }, async (group) => {
      await onPoints(group, ['a', 'b'], {}, async (replica) => {
        const { memory } = replica.onGradient
        const [a, b] = replica.module.parameters
        const write = (parameter: Parameter, value: number): boolean => {
          const { values, adds } = memory!.placeOf(parameter)!
          values[0] = adds ? values[0]! + value : value
          memory!.written(parameter)
          return adds
        }
        // the second step has other buckets, in the order of arrival
        for (const step of [1, 2, 3]) {
          replica.synchronizes = false
          expect(write(a!, 10 * step)).toBe(false)
          replica.synchronizes = true
          expect(write(a!, group.rank)).toBe(true)
          expect(memory!.placeOf(a!)).toBeUndefined()
          give(replica, 'b', group.rank)
          expect(memory!.placeOf(b!)).toBeUndefined()
          expect(numbersOf(await replica.gradients())).toEqual({ a: 10 * step + 0.5, b: 0.5 })
        }
        expect(memory!.placeOf({ ...a!, name: 'of another model' })).toBeUndefined()
        replica.dispose()
        const ended = thrownBy(() => memory!.placeOf(a!))
        expect(ended).toMatchObject({ code: 'ERR_TSR_REPLICA_ENDED' })
      })
    })
  })
})
