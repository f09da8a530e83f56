import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  columnParallel,
  dataParallel,
  disposeModule,
  fullyShard,
  loadBackend,
  parallelize,
  rowParallel,
  shardedMLP,
} from '@tsrun/training'
import { errorOf } from '../../../distributed/support/outcome.ts'
import { onPoints, Points } from './support/points.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

const plan = { 'layers.0': columnParallel(), 'layers.1': rowParallel() }
const cut = (group: ProcessGroup) =>
  parallelize(shardedMLP({ layers: 2, inputs: 4, hidden: 6, outputs: 2 }).build(), plan, group)

describe('a sharded model', () => {
  it.each([0, 1, 3] as const)(
    'cannot be replicated over the same ranks: ZeRO stage %i',
    async (stage) => {
      await runWorld({ size: 2, seed: 1 }, async (group) => {
        const model = cut(group)
        const own = model.parameters.map(({ value }) => [...value.dataSync()])
        const error = await errorOf(() =>
          stage === 0 ? dataParallel(model, group) : fullyShard(model, group, { stage }),
        )
        expect(error).toMatchObject({ code: 'ERR_TSR_REPLICA', facts: { rank: 1, first: 0 } })
        expect(error?.message).toContain('layers.0.weight [4, 3] of [4, 6], from 3 along axis 1')
        expect(model.parameters.map(({ value }) => [...value.dataSync()])).toEqual(own)
        disposeModule(model)
      })
    },
  )

  it('can be replicated over ranks that have the same parts', async () => {
    await runWorld({ size: 4, seed: 2 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, tp: 2 }, world)
      const model = cut(mesh.tp)
      const replica = await dataParallel(model, mesh.dp)
      replica.dispose()
      disposeModule(model)
    })
  })
})

describe('errors of replicas along one axis of a mesh', () => {
  it('name each rank by its number in the world', async () => {
    await runWorld({ size: 4, seed: 3 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, tp: 2 }, world)
      await onPoints(mesh.dp, ['a'], {}, async (replica) => {
        const unused = await errorOf(() => replica.gradients())
        const code = 'ERR_TSR_UNUSED_PARAMETERS'
        expect(unused).toMatchObject({ code, facts: { rank: world.rank } })
        const ended = await errorOf(() => replica.gradients())
        expect(ended).toMatchObject({
          code: 'ERR_TSR_REPLICA_ENDED',
          facts: { rank: world.rank },
        })
      })
      const module = new Points('a')
      const options = world.rank < 2 ? {} : ({ wire: 'float16' } as const)
      const error = await errorOf(() => dataParallel(module, mesh.dp, options))
      const first = world.rank % 2
      expect(error).toMatchObject({
        code: 'ERR_TSR_REPLICA',
        facts: { rank: first + 2, first },
      })
      module.dispose()
    })
  })
})
