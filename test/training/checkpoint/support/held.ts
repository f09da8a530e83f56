import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import {
  AdamW,
  columnParallel,
  ownerOfOptimizer,
  ownerOfParameters,
  rowParallel,
  shardedMLP,
  tf,
  trainer,
  type PieceOwner,
  type StatefulOptimizer,
  type Trainer,
  type TrainerOptions,
} from '@tsrun/training'

export type Layout = readonly [
  name: string,
  shape: Readonly<Record<string, number>>,
  options: TrainerOptions,
]

const [WIDTH, EXAMPLES] = [6, 8]
const plan = Object.fromEntries(
  [0, 1, 2, 3].map((i) => [`layers.${i}`, i % 2 === 0 ? columnParallel() : rowParallel()]),
)

export const layouts: readonly Layout[] = [
  ['one process', { dp: 1 }, {}],
  ['replicas', { dp: 2 }, {}],
  ['ZeRO 1', { dp: 2 }, { zero: 1 }],
  ['ZeRO 2', { dp: 2 }, { zero: 2 }],
  ['ZeRO 3', { dp: 2 }, { zero: 3 }],
  ['replicas of shards', { dp: 2, shard: 2 }, {}],
  ['a pipeline', { pp: 2, dp: 1 }, { microbatches: 2 }],
  ['a pipeline with ZeRO 3', { pp: 2, dp: 2 }, { microbatches: 2, zero: 3 }],
  ['shared layers', { tp: 2, dp: 1 }, { plan }],
]

/** Trains in a layout, and calls `visit` on each rank after some steps. */
export async function inLayout<T>(
  [, shape, options]: Layout,
  visit: (run: Trainer, step: () => Promise<void>) => Promise<T>,
): Promise<T[]> {
  const size = Object.values(shape).reduce((all, each) => all * each, 1)
  return await runWorld({ size, seed: 1 }, async (group) => {
    const mesh = await initDeviceMesh(shape, group)
    const optimizer = new AdamW({ learningRate: 0.01, weightDecay: 0.1 })
    const recipe = shardedMLP({ layers: 4, inputs: WIDTH, hidden: 8, outputs: 4, seed: 5 })
    const run = await trainer(recipe, { mesh, optimizer, ...options })
    const [index, count] = run.share
    const rows = EXAMPLES / count
    let steps = 0
    const step = async (): Promise<void> => {
      const first = 31 * steps++ + index * rows
      await run.step({
        size: rows,
        inputs: Float32Array.from({ length: rows * WIDTH }, (_, i) => Math.sin(first * WIDTH + i)),
        labels: Int32Array.from({ length: rows }, (_, i) => (first + i) % 4),
      })
    }
    await step()
    await step()
    const found = await visit(run, step)
    run.dispose()
    optimizer.dispose()
    return found
  })
}

function ownersOf({ state: { model, optimizer } }: Trainer): PieceOwner[] {
  if ('pieces' in model) return [model, optimizer as PieceOwner]
  const { parameters } = model
  return [
    ownerOfParameters(parameters),
    ownerOfOptimizer(optimizer as StatefulOptimizer, parameters),
  ]
}

/** The bits of all pieces, read in two halves; they are released. */
async function read(
  pieces: readonly Awaited<ReturnType<PieceOwner['pieces']>>[],
): Promise<string[]> {
  const bits: string[] = []
  for (const { name, values } of pieces.flat()) {
    let copy = values as Float32Array
    if ('release' in values) {
      copy = new Float32Array(values.length)
      const half = values.length >> 1
      await values.read(copy.subarray(0, half), 0)
      await values.read(copy.subarray(half), half)
      values.release()
      values.release()
    }
    bits.push(
      `${name} ${Buffer.from(copy.buffer, copy.byteOffset, copy.byteLength).toString('hex')}`,
    )
  }
  return bits
}

export interface Held {
  /** Names and bits of all pieces: read at once, and after the values were trained on. */
  readonly atOnce: readonly string[]
  readonly later: readonly string[]
  /** Read once more at the end. */
  readonly trained: readonly string[]
  /** The tensors of all ranks of this process that are left of it. */
  readonly leaked: number
}

/** Holds the pieces of each rank, trains on, and reads them. */
export async function hold(layout: Layout): Promise<Held[]> {
  return await inLayout(layout, async (run, step) => {
    const owners = ownersOf(run)
    const { world } = run.layout
    const pieces = async () => await Promise.all(owners.map(async (owner) => await owner.pieces()))
    const tensors = async (): Promise<number> => {
      await world.barrier()
      const { numTensors } = tf.memory()
      await world.barrier()
      return numTensors
    }
    const before = await tensors()
    const held = await pieces()
    const atOnce = await read(await pieces())
    await step()
    // The second one of two that overlap.
    const next = await pieces()
    await step()
    const later = await read(held)
    await step()
    await read(next)
    const leaked = (await tensors()) - before
    return { atOnce, later, trained: await read(await pieces()), leaked }
  })
}
