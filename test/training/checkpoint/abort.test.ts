import { readdirSync } from 'node:fs'
import { runWorld } from '@tsrun/distributed'
import { loadBackend, saveCheckpoint } from '@tsrun/training'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner } from './support/owner.ts'
import { folderWith, load, state, whole } from './support/saved.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

const aborted = { code: 'ERR_TSR_OPERATION_ABORTED', facts: { operation: 'saveCheckpoint' } }

describe('an aborted save', () => {
  it.each([false, true])(
    'on one rank ends on all ranks, which can continue: background %s',
    async (background) => {
      const folder = makeFolder()
      await runWorld({ size: 2, seed: 1 }, async (world) => {
        const abort = new AbortController()
        const owner = countingOwner([{ ...whole, range: world.rank === 0 ? [0, 5] : [5, 12] }])
        const save = async (step: number) => {
          const options = { background, signal: abort.signal }
          const { done } = await saveCheckpoint(folder, { model: owner, step }, world, options)
          await done
        }
        await save(1)
        const reason = new Error('enough')
        owner.pieces = () => {
          if (world.rank === 1) abort.abort(reason)
          return owner.held
        }
        const error = await save(2).catch((e: unknown) => e)
        expect(error).toMatchObject({ ...aborted, facts: { rank: 1 } })
        if (world.rank === 1) expect((error as Error).cause).toBe(reason)
        await saveCheckpoint(folder, { model: owner, step: 3 }, world)
      })
      expect(readdirSync(folder).sort()).toEqual(['step-00000001', 'step-00000003'])
    },
  )

  it.each([undefined, NaN])(
    'does not start if it was aborted with the reason %s',
    async (reason) => {
      const folder = await folderWith(1)
      const saving = saveCheckpoint(folder, state(2), undefined, {
        signal: AbortSignal.abort(reason),
      })
      await expect(saving).rejects.toMatchObject(aborted)
      expect(await load(folder)).toEqual({ step: 1, first: 1 })
    },
  )
})
