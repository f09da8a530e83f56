import { runWorld } from '@tsrun/distributed'
import {
  dataParallel,
  fullyShard,
  loadBackend,
  tf,
  type DataParallelOptions,
  type FullyShardOptions,
} from '@tsrun/training'
import { errorOf } from '../../../distributed/support/outcome.ts'
import { give, numbersOf, onPoints, Points } from './support/points.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

const different: [string, FullyShardOptions, FullyShardOptions][] = [
  ['frozen', { frozen: ['a'] }, { frozen: ['b'] }],
  ['wire', { wire: 'float16' }, {}],
  ['reduction', { reduction: 'token' }, {}],
  ['unused', { unused: 'zeros' }, {}],
  ['deterministic', { deterministic: true }, {}],
  ['firstBucketBytes', { firstBucketBytes: 4 }, {}],
]

describe('ranks with different settings', () => {
  it.each(different)('get an error that names %s: %j and %j', async (name, ...options) => {
    await runWorld({ size: 2, seed: 1 }, async (group) => {
      for (const stage of [0, 1, 3] as const) {
        const module = new Points('a', 'b')
        const error = await errorOf(() =>
          stage === 0
            ? dataParallel(module, group, options[group.rank])
            : fullyShard(module, group, { ...options[group.rank], stage }),
        )
        expect(error).toMatchObject({ code: 'ERR_TSR_REPLICA', facts: { rank: 1 } })
        expect(error?.message).toContain(name)
        module.dispose()
      }
    })
  })

  it.each<[string, FullyShardOptions, FullyShardOptions]>([
    ['stage', { stage: 1 }, { stage: 2 }],
    ['recompute', { recompute: true }, {}],
  ])('get an error that names %s', async (name, ...options) => {
    await runWorld({ size: 2, seed: 1 }, async (group) => {
      const module = new Points('a', 'b')
      const error = await errorOf(() => fullyShard(module, group, options[group.rank]))
      expect(error).toMatchObject({ code: 'ERR_TSR_REPLICA', facts: { rank: 1 } })
      expect(error?.message).toContain(name)
      module.dispose()
    })
  })
})

describe('options of replicas', () => {
  it.each([
    { wire: 'int8' },
    { reduction: 'sum' },
    { unused: 'ignore' },
    { deterministic: 1 },
    { frozen: 'w' },
    { frozen: [5] },
    { frozen: 5 },
    { frozen: ['layers.*'] },
    { bucketBytes: 0 },
    { bucketbytes: 4 },
  ])('are refused if invalid: %j', async (options) => {
    await runWorld({ size: 1 }, async (group) => {
      const module = new Points('a', 'b')
      for (const make of [dataParallel, fullyShard]) {
        const error = await errorOf(() => make(module, group, options as DataParallelOptions))
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        expect(error?.message).toContain(Object.keys(options)[0])
      }
      module.dispose()
    })
  })

  it.each([{ stage: 4 }, { stage: '3' }, { recompute: 'yes' }])(
    'of fullyShard are refused if invalid: %j',
    async (options) => {
      await runWorld({ size: 1 }, async (group) => {
        const module = new Points('a', 'b')
        const error = await errorOf(() => fullyShard(module, group, options as FullyShardOptions))
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        expect(error?.message).toContain(Object.keys(options)[0])
        module.dispose()
      })
    },
  )

  it.each(['enc.*', ['enc.a', 'enc.b'], (name: string) => name.startsWith('enc')])(
    'freeze parameters by name, pattern or predicate: %s',
    async (frozen) => {
      await runWorld({ size: 1 }, (group) =>
        onPoints(group, ['enc.a', 'enc.b', 'head'], { frozen }, async (replica) => {
          for (const { name } of replica.module.parameters) give(replica, name, 1)
          expect(numbersOf(await replica.gradients())).toEqual({ head: 1 })
        }),
      )
    },
  )

  it('do not permit two different parameters with the same name', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const twice = new Points('a', 'a')
      for (const make of [dataParallel, fullyShard]) {
        const error = await errorOf(() => make(twice, group))
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        expect(error?.message).toContain('two parameters of the name a')
      }
      twice.dispose()
      const tied = new Points('a')
      const parameters = [...tied.parameters, ...tied.parameters]
      const replica = await dataParallel({ parameters }, group)
      replica.onGradient(parameters[0]!, tf.keep(tf.tensor1d([2])))
      expect(numbersOf(await replica.gradients())).toEqual({ a: 2 })
      replica.dispose()
      tied.dispose()
    })
  })

  it('of a step are refused if the number of tokens is negative or not a number', async () => {
    await runWorld({ size: 1 }, async (group) => {
      await onPoints(group, ['a'], { reduction: 'token' }, async (replica) => {
        give(replica, 'a', 6)
        for (const tokens of [-1, NaN, Infinity, undefined, '3' as never]) {
          const error = await errorOf(() => replica.gradients(tokens))
          expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        }
        // nothing has happened: the step can still be made
        expect(numbersOf(await replica.gradients(3))).toEqual({ a: 2 })
      })
      await onPoints(group, ['a'], {}, async (replica) => {
        give(replica, 'a', 6)
        const error = await errorOf(() => replica.gradients(3))
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      })
    })
  })
})
