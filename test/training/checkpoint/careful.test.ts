import { readdirSync } from 'node:fs'
import * as tfjs from '@tensorflow/tfjs'
import { runWorld } from '@tsrun/distributed'
import { ownerOfLayers } from '@tsrun/layers'
import {
  Adam,
  latestCheckpoint,
  loadBackend,
  loadCheckpoint,
  ownerOfOptimizer,
  saveCheckpoint,
  SGD,
  type Part,
  type PieceOwner,
} from '@tsrun/training'
import { makeFolder, removeFolders } from './support/folder.ts'
import { countingOwner, cut } from './support/owner.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

const whole: Part = { name: 'w', shape: [4, 3] }

describe('simultaneous saves', () => {
  const steps = [1, 2, 3, 4]
  const names = (count: number) =>
    steps.slice(0, count).map((step) => `step-0000000${String(step)}`)

  /** An owner that writes down which checkpoints are there when its values are taken. */
  function watching(folder: string, part: Part, seen: string[][]): PieceOwner {
    const owner = countingOwner([part])
    const pieces = () => {
      seen.push(readdirSync(folder).sort())
      return owner.held
    }
    return { ...owner, pieces }
  }

  it('to one folder run one after another', async () => {
    const folder = makeFolder()
    const seen: string[][] = []
    await Promise.all(
      steps.map(async (step) => {
        const options = { background: step % 2 === 0 }
        const state = { model: watching(folder, whole, seen), step }
        await (
          await saveCheckpoint(folder, state, undefined, options)
        ).done
      }),
    )
    expect(seen).toEqual([names(0), names(1), names(2), names(3)])
    expect(readdirSync(folder).sort()).toEqual(names(4))
  })

  it('of one group run one after another', async () => {
    const folder = makeFolder()
    await runWorld({ size: 2, seed: 1 }, async (world) => {
      const seen: string[][] = []
      const part: Part = { ...whole, range: world.rank === 0 ? [0, 7] : [7, 12] }
      await Promise.all(
        steps.map((step) =>
          saveCheckpoint(folder, { model: watching(folder, part, seen), step }, world),
        ),
      )
      expect(seen).toEqual([names(0), names(1), names(2), names(3)])
    })
    expect(await latestCheckpoint(folder)).toMatchObject({ step: 4, skipped: [] })
  })
})

it('a save never deletes its own checkpoint by its keep option, even if older ones have later steps', async () => {
  const folder = makeFolder()
  for (const step of [200, 100, 300]) {
    await saveCheckpoint(folder, { model: countingOwner([whole]), step })
  }
  await saveCheckpoint(folder, { model: countingOwner([whole]), step: 50 }, undefined, { keep: 2 })
  expect(readdirSync(folder).sort()).toEqual(['step-00000050', 'step-00000300'])
})

it('all ranks refuse a state that one rank refuses, even a rank without tensors', async () => {
  const folder = makeFolder()
  const parameter = { name: 'w', shape: [4, 3] }
  const stateOf = (rank: number, optimizer: SGD | Adam) => {
    const model = countingOwner(rank === 0 ? [whole] : [], 7)
    const parameters = rank === 0 ? [parameter] : []
    return { model, parameters, optimizer }
  }
  const outcomes = await runWorld({ size: 2, seed: 1 }, async (world) => {
    const { model, parameters, optimizer } = stateOf(
      world.rank,
      new SGD({ learningRate: 0.1, momentum: 0.9 }),
    )
    const { values } = cut(whole)
    if (world.rank === 0) {
      optimizer.loadState(
        new Map([['w', { steps: 1, values: { velocity: values as Float32Array } }]]),
      )
    }
    await saveCheckpoint(
      folder,
      { model, optimizer: ownerOfOptimizer(optimizer, parameters), step: 1 },
      world,
    )
    const before = model.held
    const other = ownerOfOptimizer(new Adam(), parameters)
    const outcome = await loadCheckpoint(folder, { model, optimizer: other }, world).catch(
      (e: unknown) => e,
    )
    expect(model.held).toBe(before)
    return outcome
  })
  for (const outcome of outcomes) expect(outcome).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
})

it('a rank without values of a tensor may pass an empty range at any position', async () => {
  const folder = makeFolder()
  const ranges = [
    [0, 7],
    [0, 0],
    [7, 12],
    [5, 5],
    [12, 12],
  ] as const
  await runWorld({ size: ranges.length, seed: 1 }, async (world) => {
    const model = countingOwner([{ ...whole, range: ranges[world.rank]! }], 4)
    await saveCheckpoint(folder, { model, step: 1 }, world)
    await loadCheckpoint(folder, { model }, world)
  })
  const model = countingOwner([whole])
  await loadCheckpoint(folder, { model })
  expect(model.held[0]!.values).toEqual(cut(whole, 4).values)
})

describe('two tensors with the same name', () => {
  it('are refused if their values differ', async () => {
    const twice = (first: number) => {
      const model = countingOwner([whole])
      model.held = [cut(whole, 1), cut(whole, first)]
      return saveCheckpoint(makeFolder(), { model, step: 1 })
    }
    await twice(1)
    await expect(twice(2)).rejects.toMatchObject({
      code: 'ERR_TSR_CHECKPOINT_PIECES',
      facts: { tensor: 'w', problem: expect.stringContaining('different values') as string },
    })
  })

  it('get numbers if they belong to one layer of tf.layers', async () => {
    const build = (): tfjs.Sequential =>
      tfjs.sequential({
        layers: [
          tfjs.layers.bidirectional({
            name: 'both',
            inputShape: [3, 2],
            layer: tfjs.layers.simpleRNN({ units: 4, name: 'rnn' }),
          }),
        ],
      })
    const [model, other] = [build(), build()]
    const folder = makeFolder()
    await saveCheckpoint(folder, { model: ownerOfLayers(model), step: 1 })
    await loadCheckpoint(folder, { model: ownerOfLayers(other) })
    const values = (of: tfjs.Sequential) => of.getWeights().map((weight) => [...weight.dataSync()])
    expect(values(other)).toEqual(values(model))
    expect(() => ownerOfLayers(model, () => 'same')).toThrow('same for two')
  })
})
