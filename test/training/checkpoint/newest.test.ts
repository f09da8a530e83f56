import { mkdirSync, readdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { latestCheckpoint, loadBackend, saveCheckpoint } from '@tsrun/training'
import { makeFolder, removeFolders } from './support/folder.ts'
import { folderWith, load, state } from './support/saved.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

const nameOf = (step: number) => `step-${String(step).padStart(8, '0')}`

describe('the newest checkpoint', () => {
  it('is the one saved last, or undefined if there is none', async () => {
    const folder = await folderWith(9, 100, 20)
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 20, skipped: [] })
    expect(await latestCheckpoint(join(folder, 'step-00000100'))).toMatchObject({ step: 100 })
    expect(await latestCheckpoint(join(folder, 'nowhere'))).toBeUndefined()
    await expect(load(join(folder, 'nowhere'))).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_NONE',
    })
  })

  it('belongs to the job that resumed at an earlier step, as do the kept checkpoints', async () => {
    const folder = makeFolder()
    for (const step of [100, 200, 300, 210, 220]) {
      await saveCheckpoint(folder, state(step), undefined, { keep: 2 })
    }
    expect(readdirSync(folder).sort()).toEqual([nameOf(210), nameOf(220)])
    expect(await load(folder)).toEqual({ step: 220, first: 220 })
  })

  it('is the later save if a step was saved twice', async () => {
    const folder = await folderWith(1)
    await saveCheckpoint(folder, state(1, 50))
    await saveCheckpoint(folder, state(1, 60))
    expect(await load(folder)).toEqual({ step: 1, first: 60 })
  })

  it('is found if the indexes of checkpoints with later steps are damaged', async () => {
    const folder = await folderWith(30, 20, 10)
    truncateSync(join(folder, nameOf(20), 'index.json'), 40)
    truncateSync(join(folder, nameOf(30), 'index.json'), 0)
    expect(await latestCheckpoint(folder)).toMatchObject({
      step: 10,
      skipped: [{ path: join(folder, nameOf(30)) }],
    })
    await saveCheckpoint(folder, state(5), undefined, { keep: 2 })
    expect(readdirSync(folder).sort()).toEqual([nameOf(5), nameOf(10)])
  })

  it('is found among unrelated files in the folder', async () => {
    const folder = await folderWith(10)
    const cut = `.${nameOf(20)}.unfinished`
    for (const name of [cut, nameOf(30), 'step-x']) mkdirSync(join(folder, name))
    writeFileSync(join(folder, nameOf(40)), 'a file')
    symlinkSync('nowhere', join(folder, nameOf(50)))
    const found = await latestCheckpoint(folder)
    expect(found).toMatchObject({ path: join(folder, nameOf(10)), step: 10 })
    const names = found!.skipped.map(({ path }) => basename(path))
    expect(names.sort()).toEqual([cut, nameOf(30), nameOf(40), nameOf(50)].sort())
    expect(found!.skipped[0]).toEqual({
      path: join(folder, cut),
      problem: 'its save has not ended',
    })
  })

  it('is found beside an index that is not of a checkpoint', async () => {
    const folder = await folderWith(10)
    writeFileSync(join(folder, 'index.json'), '{"weight_map":{}}')
    expect(await latestCheckpoint(folder)).toMatchObject({
      path: join(folder, nameOf(10)),
      skipped: [{ path: folder, problem: expect.stringContaining('index.json') as string }],
    })
    expect(await load(folder)).toEqual({ step: 10, first: 10 })
  })

  it('is complete even if an older one cannot be removed, and the error says so', async () => {
    const folder = makeFolder()
    // with a dot before it, and an end behind it, this name is too long
    const stuck = `step-${'1'.padStart(248, '0')}`
    mkdirSync(join(folder, stuck))
    const saving = saveCheckpoint(folder, state(7), undefined, { keep: 1 })
    await expect(saving).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_PRUNE',
      facts: { path: join(folder, nameOf(7)) },
    })
    expect(await load(join(folder, nameOf(7)))).toEqual({ step: 7, first: 7 })
    rmSync(join(folder, stuck), { recursive: true })
  })
})
