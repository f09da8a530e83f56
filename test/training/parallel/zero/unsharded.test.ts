import { runWorld } from '@tsrun/distributed'
import {
  disposeModule,
  fullyShard,
  loadBackend,
  loadCheckpoint,
  saveCheckpoint,
  SGD,
  tf,
  type Module,
  type Tensor,
} from '@tsrun/training'
import { errorOf } from '../../../distributed/support/outcome.ts'
import { makeFolder, removeFolders } from '../../checkpoint/support/folder.ts'
import { parameterValues } from '../support/reference.ts'
import { build, part, wholeValues } from './support/training.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('wasm')
})

describe('unsharded parameters', () => {
  it.each([1, 2, 3] as const)(
    'have the values of a loaded checkpoint: ZeRO stage %i',
    async (stage) => {
      const folder = makeFolder()
      await runWorld({ size: 2, seed: 1 }, async (group) => {
        const saved = await fullyShard(build(7), group, { stage })
        await saveCheckpoint(folder, { model: saved, step: 1 }, group)
        const wanted = await wholeValues(saved)
        const sharded = await fullyShard(build(8), group, { stage })
        await sharded.gather()
        await loadCheckpoint(folder, { model: sharded }, group)
        expect(parameterValues(sharded.module)).toEqual(wanted)
        sharded.release()
        for (const each of [saved, sharded]) {
          await each.gather()
          each.dispose()
          disposeModule(each.module)
        }
      })
    },
  )
})

describe('a checkpoint of a sharded model', () => {
  it('refuses an optimizer without the owner of its shards', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const model = await fullyShard(build(), group, { stage: 1 })
      const state = { model, optimizer: new SGD({ learningRate: 1 }), step: 1 }
      const error = await errorOf(() => saveCheckpoint(makeFolder(), state, group))
      expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      expect(error?.message).toContain('an owner of the state of the optimizer')
      model.dispose()
      disposeModule(model.module)
    })
  })
})

describe('a backward pass through units', () => {
  it('leaves no gradient behind if it fails', async () => {
    await runWorld({ size: 1 }, async (group) => {
      const model = build()
      const failing: Module = {
        parameters: [],
        forward: tf.customGrad((x) => ({
          value: tf.clone(x as Tensor),
          gradFunc: () => {
            throw new Error('no gradient today')
          },
        })),
      }
      const [first, ...rest] = model.layers
      const { parameters } = model
      const layers = [first!, failing, ...rest]
      const forward = (x: Tensor) => layers.reduce((h, layer) => layer.forward(h), x)
      const sharded = await fullyShard({ parameters, layers, forward }, group)
      const before = tf.memory().numTensors
      const { inputs, labels } = part(0, 0, 24)
      const outputs = await sharded.record(inputs)
      const dy = tf.keep(tf.onesLike(outputs.value))
      const error = await errorOf(() => outputs.backward(dy))
      expect(error?.message).toBe('no gradient today')
      outputs.dispose()
      tf.dispose([inputs, labels, dy])
      expect(tf.memory().numTensors).toBe(before)
      sharded.dispose()
    })
  })
})
