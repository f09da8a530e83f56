import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  AdamW,
  dataParallel,
  fullyShard,
  loadBackend,
  loadCheckpoint,
  saveCheckpoint,
  type FullyShardOptions,
} from '@tsrun/training'
import { makeFolder, removeFolders } from '../../../checkpoint/support/folder.ts'
import { expectSame, parameterValues, type Values } from '../../support/reference.ts'
import { build, part, recorded, runPass, wholeValues } from './training.ts'

const makeOptimizer = () => new AdamW({ learningRate: 0.01, weightDecay: 0.1 })
/** The same rows on all ranks, so that any number of them takes the same steps. */
const rows = (step: number) => part(step, 0, 24)
const [SAVED, END] = [3, 6]

interface Layout {
  readonly size: number
  /** None: data parallel. */
  readonly options?: FullyShardOptions
  readonly replicas?: number
}

const layouts: readonly Layout[] = [
  { size: 2 },
  { size: 2, options: { stage: 1 } },
  { size: 3, options: { stage: 2 } },
  { size: 4, options: { stage: 3 } },
  { size: 2, options: { stage: 3, frozen: ['layers.1.weight'] } },
  { size: 4, options: { stage: 3 }, replicas: 2 },
]

/** Steps [from, to) in a layout; from one checkpoint and to another. */
async function train(
  world: ProcessGroup,
  { options, replicas = 1 }: Layout,
  [from, to]: readonly [number, number],
  visit: {
    readonly load?: string
    readonly save?: string
  },
): Promise<Values> {
  const module = build(visit.load === undefined ? 7 : 8)
  const optimizer = makeOptimizer()
  if (options === undefined) {
    const replica = await dataParallel(module, world)
    const state = { model: module, optimizer }
    if (visit.load !== undefined) await loadCheckpoint(visit.load, state, world)
    for (let step = from; step < to; step++) {
      await runPass(rows(step), (x) => recorded(module, x, replica.onGradient))
      optimizer.step(module.parameters, await replica.gradients())
    }
    if (visit.save !== undefined) await saveCheckpoint(visit.save, { ...state, step: to }, world)
    return parameterValues(module)
  }
  const mesh = await initDeviceMesh({ replicate: replicas, shard: world.size / replicas }, world)
  const sharded = await fullyShard(module, mesh, options)
  const state = { model: sharded, optimizer: sharded.stateOf(optimizer) }
  if (visit.load !== undefined) await loadCheckpoint(visit.load, state, world)
  for (let step = from; step < to; step++) {
    await runPass(rows(step), (x) => sharded.record(x))
    await sharded.step(optimizer, await sharded.gradients())
  }
  if (visit.save !== undefined) await saveCheckpoint(visit.save, { ...state, step: to }, world)
  return await wholeValues(sharded)
}

interface Transfer {
  readonly from: Layout
  readonly to: Layout
}

const transfers = layouts
  .flatMap((from) => layouts.map((to) => ({ from, to })))
  .filter(({ from, to }) => {
    // what is not trained has no state
    return from.options?.frozen === to.options?.frozen
  })

const trainable = layouts.filter(({ options }) => options?.frozen === undefined)

/** From each layout to the next one, so that each saves once and loads once. */
const isUsual = ({ from, to }: Transfer): boolean =>
  from.options?.frozen !== undefined ||
  to === trainable[(trainable.indexOf(from) + 1) % trainable.length]

export const usualTransfers = transfers.filter(isUsual)

/** What `npm run test:nightly` checks as well. */
export const otherTransfers = transfers.filter((each) => !isUsual(each))

/** By layout: the values after all steps, without a checkpoint between. */
const uninterrupted = new Map<string, Values>()

/** Holds a training that is saved in one layout and continued in another against one without a break. */
export function describeCheckpoints(transfers: readonly Transfer[]): void {
  describe('a checkpoint of shards', () => {
    beforeAll(() => loadBackend('wasm'))
    afterEach(removeFolders)

    it.each(transfers)(
      'of $from continues in $to like training without a checkpoint',
      async ({ from, to }) => {
        const folder = makeFolder()
        const saved = await runWorld({ size: from.size, seed: 1 }, (world) =>
          train(world, from, [0, SAVED], { save: folder }),
        )
        const [loaded] = await runWorld({ size: to.size, seed: 2 }, (world) =>
          train(world, to, [SAVED, SAVED], { load: folder }),
        )
        expectSame(loaded, saved[0])
        const ranks = await runWorld({ size: to.size, seed: 3 }, (world) =>
          train(world, to, [SAVED, END], { load: folder }),
        )
        const key = JSON.stringify(to)
        const straight =
          uninterrupted.get(key) ??
          (await runWorld({ size: to.size, seed: 4 }, (world) => train(world, to, [0, END], {})))[0]
        uninterrupted.set(key, straight!)
        for (const values of ranks) expectSame(values, ranks[0])
        const [found] = ranks
        for (const [name, values] of Object.entries(straight!)) {
          for (const [i, value] of values.entries()) {
            const error = Math.abs(found![name]![i]! - value)
            if (!(error < 1e-5)) expect(error).toBeLessThan(1e-5)
          }
        }
      },
    )
  })
}
