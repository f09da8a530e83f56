import {
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { runWorld } from '@tsrun/distributed'
import {
  Adam,
  latestCheckpoint,
  loadBackend,
  loadCheckpoint,
  openSafetensors,
  saveCheckpoint,
  shardedMLP,
  writeSafetensors,
  type Part,
} from '@tsrun/training'
import { describeDamage } from './support/damage.ts'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner } from './support/owner.ts'
import { fileOf, folderWith, load, whole } from './support/saved.ts'

// hundreds of loads, one a bit
afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

describe('a newer checkpoint', () => {
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
      'has 50 bytes instead of',
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
      'its checksum does not match',
    ],
    [
      'the index is another file',
      (file: string) => {
        writeFileSync(join(file, '../index.json'), 'null')
      },
      'format',
    ],
  ])('is skipped if %s', async (_, damage, problem) => {
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

describe('a forged index with a matching checksum', () => {
  type Index = Record<string, unknown> & {
    files: Record<string, unknown>
    tensors: Record<string, { pieces: unknown[] } & Record<string, unknown>>
  }

  function forge(folder: string, change: (contents: Index) => void): void {
    const file = join(fileOf(folder, 1), '../index.json')
    const { format, contents } = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>
    change(contents as Index)
    const checksum = crc32(JSON.stringify(contents))
    writeFileSync(file, JSON.stringify({ format, crc32: checksum, contents }))
  }

  const piece = { file: 'rank-00000-of-00001.safetensors', key: 'w', crc32: 1 }
  const change = (facts: object) => (index: Index) => {
    index.tensors['w'] = { ...index.tensors['w']!, ...facts }
  }
  const put = (one: unknown) => change({ pieces: [one] })
  const wrongTensor = 'the dtype, the shape or a piece of w is wrong'
  const wrong = (field: string) => `its field ${field} is missing or has a wrong value`

  it.each<[string, (contents: Index) => void]>([
    ['is not the name of a file', (index) => (index.files['../../x'] = 1)],
    ['is not the name of a file', (index) => (index.files['/etc/passwd'] = 1)],
    ['is not the name of a file', (index) => (index.files['..'] = 1)],
    [wrong('files'), (index) => (index.files[piece.file] = '1')],
    [wrong('files'), (index) => Object.assign(index, { files: [] })],
    [wrong('tensors'), (index) => Object.assign(index, { tensors: null })],
    [wrong('step'), (index) => (index['step'] = -1)],
    [wrongTensor, change({ dtype: 'toString' })],
    [wrongTensor, change({ shape: [1e10, 1e10] })],
    [wrongTensor, change({ pieces: 'all' })],
    [wrongTensor, put(null)],
    ['has no file', put({ ...piece, file: '../../x' })],
    ['has no file', put({ ...piece, file: 'toString' })],
    [wrongTensor, put({ ...piece, crc32: null })],
    ['outside of the tensor', put({ ...piece, box: { offset: [4, 0], extent: [4, 3] } })],
    [wrongTensor, put({ ...piece, box: null })],
    ['outside of its box', put({ ...piece, range: [0, 13] })],
    ['outside of its box', put({ ...piece, range: [2, 1] })],
  ])('is refused before a file is opened (%#): %s', async (problem, forged) => {
    const folder = await folderWith(1)
    forge(folder, forged)
    await expect(load(folder)).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_UNFINISHED',
      facts: { problem: expect.stringContaining(problem) as string },
    })
  })

  it('cannot pass a smaller tensor off as the whole', async () => {
    const folder = await folderWith(1)
    const file = fileOf(folder, 1)
    const values = Float32Array.of(1, 2, 3, 4)
    await writeSafetensors(file, new Map([['w', { shape: [4, 1], values }]]))
    const forged = { ...piece, box: { offset: [0, 0], extent: [4, 1] }, crc32: crc32(values) }
    forge(folder, (index) => {
      put(forged)(index)
      index.files[piece.file] = statSync(file).size
    })
    await expect(load(folder)).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_DAMAGED',
      facts: { problem: 'it has 4 of the 12 values that this rank needs' },
    })
  })

  it('cannot reach outside the folder through a link', async () => {
    const folder = await folderWith(1)
    const file = fileOf(folder, 1)
    renameSync(file, join(folder, 'elsewhere'))
    symlinkSync(join(folder, 'elsewhere'), file)
    const told = expect.stringContaining('is not a regular file') as string
    await expect(load(folder)).rejects.toMatchObject({ facts: { problem: told } })
  })

  it('does not reveal how another file begins', () => {
    const path = join(makeFolder(), 'secret')
    writeFileSync(path, 'root:x:0:0:root:/root:/bin/sh')
    let error: unknown
    try {
      openSafetensors(path)
    } catch (thrown) {
      error = thrown
    }
    const first = new DataView(new TextEncoder().encode('root:x:0').buffer).getBigUint64(0, true)
    expect(String(error)).toContain('ERR_TSR_SAFETENSORS')
    expect(String(error)).not.toMatch(new RegExp(`root:x|${first}`))
  })
})

// every bit is in damage.slow.test.ts
describeDamage(7)

describe('loading a damaged file', () => {
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

  it('is refused if its tensor names differ, but may have extra tensors if strict is false', async () => {
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

  it('is refused if its tensor sizes differ', async () => {
    const model = shardedMLP({ ...sizes, hidden: 7 }).build()
    await expect(loadCheckpoint(await saved(), { model })).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_SHAPE',
      facts: { tensor: 'layers.0.weight', has: '[4, 6]', wants: '[4, 7]' },
    })
  })

  it('without an optimizer is refused when a state has one', async () => {
    const model = shardedMLP(sizes).build()
    await expect(
      loadCheckpoint(await saved(), { model, optimizer: new Adam() }),
    ).rejects.toMatchObject({ code: 'ERR_TSR_CHECKPOINT_MISSING' })
  })
})
