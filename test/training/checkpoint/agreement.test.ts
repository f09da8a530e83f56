import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  Adam,
  loadBackend,
  loadCheckpoint,
  saveCheckpoint,
  shardedMLP,
  type SavedState,
  type SaveOptions,
} from '@tsrun/training'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner } from './support/owner.ts'
import { load, whole } from './support/saved.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

/** What each of two ranks gets. */
const outcomes = (run: (world: ProcessGroup) => Promise<unknown>) =>
  runWorld({ size: 2, seed: 1 }, (world) => run(world).catch((error: unknown) => error))

const empty = countingOwner([])

describe('a save', () => {
  it.each([
    ['step', [{ step: 41 }, { step: 42 }], [{}, {}], '42 on rank 1'],
    ['optimizer', [{ optimizer: empty }, {}], [{}, {}], 'false on rank 1'],
    ['background', [{}, {}], [{}, { background: true }], 'true on rank 1'],
    ['compare', [{}, {}], [{ compare: false }, {}], 'true on rank 1'],
  ] as [string, Partial<SavedState>[], SaveOptions[], string][])(
    'is refused if ranks have different %s',
    async (name, states, options, value) => {
      const folder = makeFolder()
      const refused = await outcomes(async (world) => {
        const model = countingOwner([whole])
        const state = { model, step: 1, ...states[world.rank] }
        return await saveCheckpoint(folder, state, world, options[world.rank])
      })
      for (const error of refused) {
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name, value } })
      }
    },
  )

  it('is refused if the compared replicas differ', async () => {
    const folder = makeFolder()
    const save = (options: SaveOptions) =>
      outcomes(async (world) => {
        const model = countingOwner([whole], world.rank)
        return await saveCheckpoint(folder, { model, step: 1 }, world, options)
      })
    for (const error of await save({})) {
      expect(error).toMatchObject({
        code: 'ERR_TSR_CHECKPOINT_PIECES',
        facts: { tensor: 'w', problem: 'ranks 0 and 1 have different values of w' },
      })
    }
    await save({ compare: false })
    expect((await load(folder)).step).toBe(1)
  })
})

describe('a load', () => {
  const sizes = { layers: 2, inputs: 4, hidden: 6, outputs: 6 }

  it.each([
    ['requests a missing tensor', 'ERR_TSR_CHECKPOINT_MISSING'],
    ['has an optimizer without parameters', 'ERR_TSR_ARGUMENT'],
  ])('fails on all ranks if one rank %s', async (_, code) => {
    const folder = makeFolder()
    await saveCheckpoint(folder, { model: shardedMLP(sizes).build(), step: 1 })
    const errors = await outcomes(async (world) => {
      const model = shardedMLP(sizes).build()
      const parts = code === 'ERR_TSR_ARGUMENT' ? empty : model
      const state = world.rank === 0 ? { model } : { model: parts, optimizer: new Adam() }
      return await loadCheckpoint(folder, state, world)
    })
    for (const error of errors) expect(error).toMatchObject({ code })
  })
})
