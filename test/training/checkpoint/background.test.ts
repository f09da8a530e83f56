import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { loadBackend, saveCheckpoint } from '@tsrun/training'
import { needing } from '../../needs.ts'
import { runModule } from '../backend/support/process.ts'
import { tensorflow } from '../backend/support/tensorflow.ts'
import { describeBackground, expectHeld, isUsual } from './support/background.ts'
import { makeFolder } from './support/folder.ts'
import { layouts, type Held } from './support/held.ts'
import { countingOwner } from './support/owner.ts'
import { load, whole } from './support/saved.ts'

describeBackground(isUsual)

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
