import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import * as tfjs from '@tensorflow/tfjs'
import { runWorld } from '@tsrun/distributed'
import {
  Adam,
  loadBackend,
  loadCheckpoint,
  loadPretrained,
  saveCheckpoint,
  shardedMLP,
} from '@tsrun/training'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner } from './support/owner.ts'

afterEach(removeFolders)
// the models are part of the cases
await loadBackend('cpu')

const recipe = shardedMLP({ layers: 1, inputs: 2, outputs: 2 })
const model = recipe.build()
const optimizer = new Adam()

/** Without types, as in a program of JavaScript. */
const save = (...given: unknown[]) =>
  (saveCheckpoint as (...all: unknown[]) => Promise<unknown>)(...given)
const load = (...given: unknown[]) =>
  (loadCheckpoint as (...all: unknown[]) => Promise<unknown>)(...given)

const wrong: [string, object | undefined, RegExp][] = [
  [
    'optim',
    { model, optim: optimizer },
    /state is an object with the unknown key "optim"; .* model, optimizer, step, data/,
  ],
  ['a recipe', { model: recipe }, /model is a recipe; expected the result of its build\(\)/],
  [
    'values by name',
    { model: { 'a.weight': 1 } },
    /model is an object with a\.weight; expected a module/,
  ],
  [
    'a model of tf.layers',
    { model: tfjs.sequential() },
    /a model of tf\.layers; expected ownerOfLayers/,
  ],
  ['no model', {}, /model is undefined/],
  ['a model that is null', { model: null }, /model is null/],
  [
    'an optimizer of tf.train',
    { model, optimizer: tfjs.train.sgd(1) },
    /an object with state\(\) and loadState\(\)/,
  ],
  ['an optimizer that is null', { model, optimizer: null }, /optimizer is null/],
]

it.each(wrong)('a state with %s is refused by all ranks', async (_, state, message) => {
  const folder = makeFolder()
  await saveCheckpoint(folder, { model, step: 1 })
  await runWorld({ size: 2 }, async (group) => {
    const refusal = expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }) as Error
    for (const run of [save, load]) {
      const outcome = run(folder, { step: 2, ...state }, group)
      await expect(outcome).rejects.toEqual(refusal)
      await expect(outcome).rejects.toThrow(message)
    }
  })
})

it('a state can be loaded through the object with which it was saved', async () => {
  const folder = makeFolder()
  const state = { model, step: 1, data: null }
  await saveCheckpoint(folder, state)
  await expect(loadCheckpoint(folder, state)).resolves.toMatchObject({ step: 1 })
})

it('saving and loading refuse arguments in the wrong order', async () => {
  const folder = makeFolder()
  const state = { model, step: 1 }
  for (const run of [save, load]) {
    await expect(run(state, folder)).rejects.toThrow(/directory is an object with model, step;/)
    await expect(run(folder, state, { keep: 2 })).rejects.toThrow(
      /group is an object with keep; expected a process group, .* options come after it/,
    )
    await expect(run(folder, undefined)).rejects.toThrow(
      /There is no checkpoint|state is undefined/,
    )
  }
})

it('a save to a file that another rank has created fails, and advises to pass the group', async () => {
  const folder = makeFolder()
  const taken = join(folder, 'step-00000001', 'rank-00000-of-00001.safetensors')
  // Another process takes the name first: the values are read after the place is chosen.
  const read = jest.fn(() => {
    mkdirSync(taken, { recursive: true })
  })
  const values = { length: 1, read, release: () => undefined }
  const owner = { ...countingOwner([]), pieces: () => [{ name: 'w', shape: [], values }] }
  const outcome = saveCheckpoint(folder, { model: owner, step: 1 })
  await expect(outcome).rejects.toThrow(/cannot write the checkpoint .* pass the group/)
  expect(read).toHaveBeenCalled()
})

it('an optimizer that was not saved cannot be loaded', async () => {
  const folder = makeFolder()
  await saveCheckpoint(folder, { model, step: 1 })
  await expect(loadCheckpoint(folder, { model, optimizer })).rejects.toThrow(
    /has no state of an optimizer; it has a model only/,
  )
})

it('a file in the place of a checkpoint is refused with the folder that is meant', async () => {
  const { path } = await saveCheckpoint(makeFolder(), { model, step: 1 })
  await expect(load(join(path, 'index.json'), { model })).rejects.toThrow(
    `directory is the file ${join(path, 'index.json')}; expected the folder of a checkpoint, such as ${path}`,
  )
})

describe('loadPretrained', () => {
  it('refuses objects without parameters', async () => {
    const path = join(makeFolder(), 'model.safetensors')
    await expect(loadPretrained(path, recipe as never)).rejects.toThrow(/model is a recipe/)
    await expect(loadPretrained(path, undefined as never)).rejects.toThrow(/model is undefined/)
  })

  it('names a missing file, and recognizes the folder of a checkpoint', async () => {
    const folder = makeFolder()
    const { path } = await saveCheckpoint(folder, { model, step: 1 })
    for (const [given, message] of [
      [join(folder, 'none'), /none cannot be used: ENOENT/],
      [makeFolder(), /has neither model\.safetensors nor model\.safetensors\.index\.json/],
      [path, /it is a checkpoint, which loadCheckpoint loads/],
    ] as const) {
      const outcome = loadPretrained(given, model)
      const refusal = expect.objectContaining({ code: 'ERR_TSR_SAFETENSORS' }) as Error
      await expect(outcome).rejects.toEqual(refusal)
      await expect(outcome).rejects.toThrow(message)
    }
  })
})
