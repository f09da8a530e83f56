import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { jest } from '@jest/globals'
import {
  Adam,
  loadBackend,
  saveCheckpoint,
  shardedMLP,
  tf,
  trainer,
  type PieceOwner,
} from '@tsrun/training'
import { openOwnMemory } from '../../internals/training.ts'
import { needing } from '../../needs.ts'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner } from './support/owner.ts'
import { fileOf, load } from './support/saved.ts'

const { it: itInPlace } = needing(
  openOwnMemory() !== undefined,
  'native bindings that let a thread read the memory of this process',
)

afterEach(removeFolders)

const part = { name: 'w', shape: [700, 1000] }

const read = () => {
  throw new Error('the values were copied by this thread')
}

/** An owner of values that have only a view. */
const ownerOf = (view: () => Float32Array, release: () => void): PieceOwner => ({
  ...countingOwner([part]),
  pieces: () => [{ ...part, values: { length: 700_000, read, view, release } }],
})

const count = (first: number) => Float32Array.from({ length: 700_000 }, (_, i) => first + i)

itInPlace(
  'another thread reads large values that have a view, and then releases them',
  async () => {
    const folder = makeFolder()
    const values = count(5)
    const release = jest.fn<() => void>()
    await saveCheckpoint(folder, { model: ownerOf(() => values, release), step: 1 })
    expect(release).toHaveBeenCalled()
    expect(await load(folder, countingOwner([part], -1))).toEqual({ step: 1, first: 5 })
  },
)

itInPlace('a save fails if values move while another thread reads them', async () => {
  const folder = makeFolder()
  const copies: Float32Array[] = []
  const move = () => {
    copies.push(count(5))
    return copies.at(-1)!
  }
  const model = ownerOf(move, () => undefined)
  await expect(saveCheckpoint(folder, { model, step: 1 })).rejects.toMatchObject({
    code: 'ERR_TSR_CHECKPOINT_WRITE',
    facts: { reason: 'the memory of the tensors has moved during the save' },
  })
})

it('a background save has the values of its step while steps use freed memory again: wasm', async () => {
  await loadBackend('wasm')
  const folder = makeFolder()
  const before = tf.memory().numTensors
  const width = 512
  const model = shardedMLP({ layers: 3, inputs: width, hidden: width, outputs: width })
  const optimizer = new Adam({ learningRate: 0.01 })
  const run = await trainer(model, { optimizer })
  const inputs = Float32Array.from({ length: width }, (_, i) => Math.sin(i))
  const step = () => run.step({ size: 1, inputs, labels: Int32Array.of(3) })
  await step()
  await run.save(join(folder, 'at once'))
  const { done } = await run.save(join(folder, 'later'), { background: true })
  const isRunning = () => Promise.race([done.then(() => false), setImmediate(true)])
  while (await isRunning()) await step()
  const [atOnce, later] = ['at once', 'later'].map((name) =>
    readFileSync(fileOf(join(folder, name), 1)),
  )
  expect(Buffer.compare(later!, atOnce!)).toBe(0)
  run.dispose()
  optimizer.dispose()
  expect(tf.memory().numTensors).toBe(before)
})
