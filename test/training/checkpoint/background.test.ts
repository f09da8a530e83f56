import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { loadBackend, saveCheckpoint, tf } from '@tsrun/training'
import { needing } from '../../needs.ts'
import { runModule } from '../backend/support/process.ts'
import { tensorflow } from '../backend/support/tensorflow.ts'
import { makeFolder, removeFolders } from './support/folder.ts'
import { hold, inLayout, layouts, type Held } from './support/held.ts'
import { countingOwner } from './support/owner.ts'
import { load, whole } from './support/saved.ts'

jest.setTimeout(120_000)
afterEach(removeFolders)

function expectHeld(ranks: readonly Held[]): void {
  for (const { atOnce, later, trained, leaked } of ranks) {
    expect(later).toEqual(atOnce)
    expect(trained).not.toEqual(atOnce)
    expect(leaked).toBe(0)
  }
}

describe.each(['wasm', 'cpu'] as const)('on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it.each(layouts)(
    'held values stay as they are while training continues: %s',
    async (...layout) => {
      expectHeld(await hold(layout))
    },
  )

  it.each(layouts)('a background save has the values of its step: %s', async (...layout) => {
    const folder = makeFolder()
    const before = tf.memory().numTensors
    const paths = await inLayout(layout, async (run, step) => {
      const { path } = await run.save(join(folder, 'at once'))
      const { done, path: later } = await run.save(join(folder, 'later'), { background: true })
      for (let i = 0; i < 3; i++) await step()
      await done
      return [path, later].map(contentsOf)
    })
    for (const [atOnce, later] of paths) expect(later).toEqual(atOnce)
    expect(tf.memory().numTensors).toBe(before)
  })
})

/** The tensors of a checkpoint, with the checksum of each piece. */
const contentsOf = (path: string): unknown => {
  const index = JSON.parse(readFileSync(join(path, 'index.json'), 'utf8')) as {
    contents: { tensors: unknown }
  }
  return index.contents.tensors
}

const { it: itOnTensorFlow } = needing(
  tensorflow !== undefined,
  'TensorFlow (npx tsrun setup tensorflow)',
)

const program = fileURLToPath(new URL('./support/held.ts', import.meta.url))

itOnTensorFlow('held values stay as they are while training continues: tensorflow', async () => {
  const script = `
      const { hold, layouts } = await import(${JSON.stringify(program)})
      await training.loadBackend('tensorflow')
      const found = []
      for (const layout of layouts) found.push(await hold(layout))
      console.log(JSON.stringify(found))`
  const { code, stdout, stderr } = await runModule(script, { ...tensorflow })
  expect({ code, stderr }).toMatchObject({ code: 0 })
  const found = JSON.parse(stdout.trim().split('\n').at(-1)!) as Held[][]
  expect(found).toHaveLength(layouts.length)
  for (const ranks of found) expectHeld(ranks)
})

describe('a tensor of several chunks', () => {
  const part = { ...whole, shape: [700, 1000] }

  it('is read and checked in chunks by another thread while training continues', async () => {
    await loadBackend('cpu')
    const folder = makeFolder()
    const parts = [part, { name: 'small', shape: [3] }, { name: 'next', shape: [300_000] }]
    await saveCheckpoint(folder, { model: countingOwner(parts, 7), step: 1 })
    const read = countingOwner(parts, -1)
    expect(await load(folder, read)).toEqual({ step: 1, first: 7 })
  })

  it('is refused if its last value is not finite, and leaves the previous checkpoint', async () => {
    const folder = makeFolder()
    const model = countingOwner([part], 1)
    await saveCheckpoint(folder, { model, step: 1 })
    model.held[0]!.values[699_999] = -Infinity
    const { done } = await saveCheckpoint(folder, { model, step: 2 }, undefined, {
      background: true,
    })
    await expect(done).rejects.toMatchObject({
      code: 'ERR_TSR_NOT_FINITE',
      facts: { what: 'w', value: -Infinity },
    })
    expect(readdirSync(folder)).toEqual(['step-00000001'])
  })
})
