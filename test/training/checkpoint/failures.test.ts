import {
  chmodSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import {
  Adam,
  latestCheckpoint,
  loadBackend,
  loadCheckpoint,
  saveCheckpoint,
  shardedMLP,
  type Part,
  type SavedState,
} from '@tsrun/training'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner } from './support/owner.ts'

// thousands of loads, one a bit
jest.setTimeout(60_000)
afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

const whole: Part = { name: 'w', shape: [4, 3] }
const state = (step: number, first = step): SavedState => ({
  model: countingOwner([whole], first),
  step,
})

/** A folder with checkpoints of these steps; the values of step n begin with n. */
async function folderWith(...steps: number[]): Promise<string> {
  const folder = makeFolder()
  for (const step of steps) await saveCheckpoint(folder, state(step))
  return folder
}

/** The first value of what is loaded. */
async function load(folder: string): Promise<{ step: number; first: number }> {
  const model = countingOwner([whole], -1)
  const { step } = await loadCheckpoint(folder, { model })
  const { values } = model.held[0]!
  // they count up
  for (const [i, value] of values.entries()) expect(value - values[0]!).toBe(i)
  return { step, first: values[0]! }
}

const fileOf = (folder: string, step: number, name = 'rank-00000-of-00001.safetensors') =>
  join(folder, `step-${String(step).padStart(8, '0')}`, name)

describe('the newest checkpoint', () => {
  it('is found by its number; there may be none', async () => {
    const folder = await folderWith(9, 100, 20)
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 100, skipped: [] })
    expect(await latestCheckpoint(join(folder, 'step-00000020'))).toMatchObject({ step: 20 })
    expect(await latestCheckpoint(join(folder, 'nowhere'))).toBeUndefined()
    await expect(load(join(folder, 'nowhere'))).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_NONE',
    })
  })

  it('of a step that was saved twice is the later one', async () => {
    const folder = await folderWith(1)
    await saveCheckpoint(folder, state(1, 50))
    await saveCheckpoint(folder, state(1, 60))
    expect(await load(folder)).toEqual({ step: 1, first: 60 })
  })

  it.each([
    [
      'a file is missing',
      (file: string) => {
        rmSync(file)
      },
      'is missing',
    ],
    [
      'a file is shorter',
      (file: string) => {
        truncateSync(file, 50)
      },
      'has 50 bytes, and not',
    ],
    [
      'the index is missing',
      (file: string) => {
        rmSync(join(file, '../index.json'))
      },
      'no index.json',
    ],
    [
      'the index is cut off',
      (file: string) => {
        truncateSync(join(file, '../index.json'), 99)
      },
      'not JSON',
    ],
    [
      'the index was changed',
      (file: string) => {
        const index = join(file, '../index.json')
        writeFileSync(index, readFileSync(index, 'utf8').replace('[4,3]', '[3,4]'))
      },
      'it was changed',
    ],
    [
      'the index is another file',
      (file: string) => {
        writeFileSync(join(file, '../index.json'), 'null')
      },
      'format',
    ],
  ])('is passed over where %s', async (_, damage, problem) => {
    const folder = await folderWith(1, 2)
    damage(fileOf(folder, 2))
    const path = join(folder, 'step-00000002')
    const told = expect.stringContaining(problem) as string
    expect(await latestCheckpoint(folder)).toMatchObject({
      step: 1,
      skipped: [{ path, problem: told }],
    })
    expect(await load(folder)).toEqual({ step: 1, first: 1 })
    rmSync(join(folder, 'step-00000001'), { recursive: true })
    await expect(load(folder)).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_UNFINISHED',
      facts: { path, problem: told },
    })
  })
})

describe('a damaged file', () => {
  it('is found by its checksum, at every bit, and names the tensor', async () => {
    const folder = await folderWith(1)
    const file = fileOf(folder, 1)
    const content = readFileSync(file)
    let harmless = 0
    for (let bit = 0; bit < 8 * content.length; bit++) {
      const damaged = Buffer.from(content)
      damaged[bit >> 3]! ^= 1 << (bit & 7)
      writeFileSync(file, damaged)
      const outcome = await load(folder).catch((error: unknown) => error)
      if (isDeepStrictEqual(outcome, { step: 1, first: 1 })) harmless++
      else {
        expect(outcome).toMatchObject({
          code: 'ERR_TSR_CHECKPOINT_DAMAGED',
          facts: { path: file, tensor: 'w' },
        })
      }
    }
    // in the words of the metadata
    expect(harmless).toBeLessThanOrEqual(8 * '__metadata__format'.length)
    writeFileSync(file, content)
    expect(await load(folder)).toEqual({ step: 1, first: 1 })
  })

  it('changes nothing on any rank', async () => {
    const folder = makeFolder()
    const parts = (rank: number): Part[] => [{ ...whole, range: rank === 0 ? [0, 5] : [5, 12] }]
    await runWorld({ size: 2, seed: 1 }, async (world) => {
      const model = countingOwner(parts(world.rank))
      await saveCheckpoint(folder, { model, step: 1 }, world)
    })
    const file = fileOf(folder, 1, 'rank-00001-of-00002.safetensors')
    const content = readFileSync(file)
    content[content.length - 1]! ^= 1
    writeFileSync(file, content)
    const outcomes = await runWorld({ size: 2, seed: 2 }, async (world) => {
      const model = countingOwner(parts(world.rank), 70)
      const before = model.held
      const error = await loadCheckpoint(folder, { model }, world).catch((e: unknown) => e)
      expect(model.held).toBe(before)
      return error
    })
    for (const error of outcomes) {
      expect(error).toMatchObject({ code: 'ERR_TSR_CHECKPOINT_DAMAGED', facts: { path: file } })
    }
  })
})

describe('a checkpoint of another model', () => {
  const sizes = { layers: 2, inputs: 4, hidden: 6, outputs: 6 }
  const saved = async (): Promise<string> => {
    const folder = makeFolder()
    await saveCheckpoint(folder, { model: shardedMLP(sizes).build(), step: 1 })
    return folder
  }

  it('is refused by its names, unless it may have more', async () => {
    const folder = await saved()
    const first = shardedMLP(sizes).slice(0, 1)
    await expect(loadCheckpoint(folder, { model: first })).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_MODEL',
      facts: { more: 'layers.1.weight, layers.1.bias', less: 'nothing' },
    })
    await loadCheckpoint(folder, { model: first }, undefined, { strict: false })
    await expect(
      loadCheckpoint(folder, { model: shardedMLP({ ...sizes, layers: 3 }).build() }),
    ).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_MISSING',
      facts: { tensor: 'layers.2.weight' },
    })
  })

  it('is refused by its sizes', async () => {
    const model = shardedMLP({ ...sizes, hidden: 7 }).build()
    await expect(loadCheckpoint(await saved(), { model })).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_SHAPE',
      facts: { tensor: 'layers.0.weight', has: '[4, 6]', wants: '[4, 7]' },
    })
  })

  it('that has no optimizer cannot give one its state', async () => {
    const model = shardedMLP(sizes).build()
    await expect(
      loadCheckpoint(await saved(), { model, optimizer: new Adam() }),
    ).rejects.toMatchObject({ code: 'ERR_TSR_CHECKPOINT_MISSING' })
  })
})

describe('saving', () => {
  it('keeps as many as it is told, and what else is in the folder', async () => {
    const folder = await folderWith(1, 2, 3)
    writeFileSync(join(folder, 'notes.txt'), 'mine')
    await saveCheckpoint(folder, state(4), undefined, { keep: 2 })
    expect(readdirSync(folder).sort()).toEqual(['notes.txt', 'step-00000003', 'step-00000004'])
  })

  it('removes what others have not finished', async () => {
    const folder = await folderWith(1)
    renameSync(join(folder, 'step-00000001'), join(folder, '.step-00000001.unfinished'))
    expect(await latestCheckpoint(folder)).toBeUndefined()
    await saveCheckpoint(folder, state(2))
    expect(readdirSync(folder)).toEqual(['step-00000002'])
  })

  it('fails on all ranks where one cannot write, and leaves nothing', async () => {
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

  it('says that a folder is read-only', async () => {
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
      'have a part of the tensor only',
      [[{ ...whole, range: [0, 5] }], [{ ...whole, range: [6, 12] }]],
      '11 values',
    ],
    [
      'have parts that overlap',
      [[{ ...whole, range: [0, 7] }], [{ ...whole, range: [6, 12] }]],
      '13 values',
    ],
    [
      'have some values twice and others not at all',
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
    [{ step: 1, seeds: { weights: NaN } }, 'seeds'],
  ])('refuses what JSON changes, and steps that are none: %#', async (wrong, name) => {
    const saving = saveCheckpoint(makeFolder(), { ...state(1), ...wrong })
    await expect(saving).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT', facts: { name } })
  })

  it('refuses to keep none, on all ranks', async () => {
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
  it('saves the values of the moment of the call; the next save waits', async () => {
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

  it('tells that it has failed, or the next save does, once', async () => {
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
