import { chmodSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  latestCheckpoint,
  loadBackend,
  loadCheckpoint,
  saveCheckpoint,
  type Part,
} from '@tsrun/training'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner } from './support/owner.ts'
import { folderWith, load, state, whole } from './support/saved.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

describe('saving', () => {
  it('keeps the given number of checkpoints, and other files in the folder', async () => {
    const folder = await folderWith(1, 2, 3)
    writeFileSync(join(folder, 'notes.txt'), 'mine')
    await saveCheckpoint(folder, state(4), undefined, { keep: 2 })
    expect(readdirSync(folder).sort()).toEqual(['notes.txt', 'step-00000003', 'step-00000004'])
  })

  it('removes unfinished checkpoints of earlier saves', async () => {
    const folder = await folderWith(1)
    renameSync(join(folder, 'step-00000001'), join(folder, '.step-00000001.unfinished'))
    expect(await latestCheckpoint(folder)).toBeUndefined()
    await saveCheckpoint(folder, state(2))
    expect(readdirSync(folder)).toEqual(['step-00000002'])
  })

  it('fails on all ranks if one cannot write, and leaves no files', async () => {
    const folder = makeFolder()
    const file = join(folder, 'file')
    writeFileSync(file, '')
    const errors = await runWorld({ size: 2, seed: 1 }, async (world) => {
      const model = countingOwner([whole])
      return await saveCheckpoint(join(file, 'below'), { model, step: 1 }, world).catch(
        (e: unknown) => e,
      )
    })
    for (const error of errors) {
      expect(error).toMatchObject({ code: 'ERR_TSR_CHECKPOINT_WRITE', facts: { rank: 0 } })
    }
    expect(readdirSync(folder)).toEqual(['file'])
  })

  it('reports that a folder is read-only', async () => {
    const folder = await folderWith(1)
    chmodSync(folder, 0o500)
    try {
      // who may write everywhere is not stopped
      const isFree = await saveCheckpoint(folder, state(2)).then(
        () => true,
        (error: unknown) => error,
      )
      if (process.getuid?.() !== 0) {
        expect(isFree).toMatchObject({ code: 'ERR_TSR_CHECKPOINT_WRITE' })
        expect(await load(folder)).toEqual({ step: 1, first: 1 })
      }
    } finally {
      chmodSync(folder, 0o700)
    }
  })

  it.each([
    [
      'have only a part of the tensor',
      [[{ ...whole, range: [0, 5] }], [{ ...whole, range: [6, 12] }]],
      '11 values',
    ],
    [
      'have parts that overlap',
      [[{ ...whole, range: [0, 7] }], [{ ...whole, range: [6, 12] }]],
      '13 values',
    ],
    [
      'have some values twice and lack others',
      [[{ ...whole, range: [0, 7] }], [{ ...whole, range: [6, 11] }]],
      'w{0:7} and w{6:11} overlap',
    ],
    [
      'have a box and a range that overlap',
      [[{ ...whole, box: { offset: [0, 0], extent: [4, 1] } }], [{ ...whole, range: [4, 12] }]],
      'overlap',
    ],
    ['have other shapes', [[whole], [{ name: 'w', shape: [3, 4] }]], 'F32 [3, 4] on rank 1'],
  ] as [string, Part[][], string][])('refuses ranks that %s', async (_, parts, problem) => {
    const errors = await runWorld({ size: 2, seed: 1 }, async (world) => {
      const model = countingOwner(parts[world.rank]!)
      return await saveCheckpoint(makeFolder(), { model, step: 1 }, world).catch((e: unknown) => e)
    })
    for (const error of errors) {
      expect(error).toMatchObject({
        code: 'ERR_TSR_CHECKPOINT_PIECES',
        facts: { tensor: 'w', problem: expect.stringContaining(problem) as string },
      })
    }
  })

  it.each([
    [{ step: -1 }, 'step'],
    [{ step: 0.5 }, 'step'],
    [{ step: 1, data: { at: undefined } }, 'data'],
    [{ step: 1, data: new Map() }, 'data'],
    [{ step: 1, data: { position: 1n } }, 'data'],
    [{ step: 1, data: () => 1 }, 'data'],
  ])('refuses values that JSON does not preserve, and invalid steps: %#', async (wrong, name) => {
    const saving = saveCheckpoint(makeFolder(), { ...state(1), ...wrong })
    await expect(saving).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name } })
  })

  it('refuses unknown options, as loading does', async () => {
    const folder = await folderWith(1)
    const wrong = { keeep: 3 } as never
    for (const call of [
      (world: ProcessGroup) => saveCheckpoint(folder, state(2), world, wrong),
      (world: ProcessGroup) => loadCheckpoint(folder, state(1), world, wrong),
    ]) {
      const failed = await runWorld({ size: 2, seed: 1 }, (world) =>
        call(world).catch((error: unknown) => error),
      )
      for (const error of failed) {
        expect(error).toMatchObject({
          code: 'ERR_TSR_ARGUMENT',
          facts: { value: 'an object with the unknown key "keeep"' },
        })
      }
    }
  })

  it('refuses to keep zero checkpoints, on all ranks', async () => {
    const errors = await runWorld({ size: 2, seed: 1 }, async (world) => {
      const keep = world.rank === 1 ? 0 : 3
      return await saveCheckpoint(makeFolder(), state(1), world, { keep }).catch((e: unknown) => e)
    })
    for (const error of errors) {
      expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name: 'keep' } })
    }
  })
})

describe('saving in the background', () => {
  it('saves the values at the time of the call, and the next save waits', async () => {
    const folder = makeFolder()
    await runWorld({ size: 3, seed: 1 }, async (world) => {
      const owner = countingOwner([whole], 5)
      const save = (step: number) =>
        saveCheckpoint(folder, { model: owner, step }, world, { background: true })
      const first = await save(1)
      owner.held = countingOwner([whole], -3).held
      // beside the files of the other
      await world.allReduce(Float32Array.of(1))
      const second = await save(2)
      const isThere = (await latestCheckpoint(folder, world))!.step >= 1
      await Promise.all([first.done, second.done])
      expect(isThere).toBe(true)
    })
    expect(await load(join(folder, 'step-00000001'))).toEqual({ step: 1, first: 5 })
    expect(await load(folder)).toEqual({ step: 2, first: -3 })
  })

  it('saves the data at the time of the call', async () => {
    const folder = makeFolder()
    const data = { consumed: 5, more: { epoch: 1 } }
    const saving = { ...state(1), data }
    const { done } = await saveCheckpoint(folder, saving, undefined, { background: true })
    data.consumed = 99
    // what JSON cannot hold is not looked at any more
    Object.assign(data.more, { epoch: 2n })
    await done
    const model = countingOwner([whole])
    expect(await loadCheckpoint(folder, { model })).toMatchObject({
      data: { consumed: 5, more: { epoch: 1 } },
    })
  })

  it('reports a failure once: to a caller that waits, or else from the next save', async () => {
    const folder = makeFolder()
    const bad = join(folder, 'link')
    symlinkSync(join(folder, 'nowhere', 'below'), bad)
    const failed = { code: 'ERR_TSR_CHECKPOINT_WRITE', facts: { rank: 0 } }
    const save = (step: number) => saveCheckpoint(bad, state(step), undefined, { background: true })
    await expect((await save(1)).done).rejects.toMatchObject(failed)
    await save(2)
    await expect(save(3)).rejects.toMatchObject(failed)
    rmSync(bad)
    await (
      await save(4)
    ).done
    expect(await load(bad)).toEqual({ step: 4, first: 4 })
  })
})
