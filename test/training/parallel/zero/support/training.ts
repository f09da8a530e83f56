import type { ProcessGroup } from '@tsrun/distributed'
import {
  crossEntropy,
  dataParallel,
  disposeModule,
  fullyShard,
  recordLoss,
  recordModule,
  shardedMLP,
  tf,
  type DataParallelOptions,
  type FullyShard,
  type FullyShardOptions,
  type GradientListener,
  type Module,
  type Optimizer,
  type ShardingGroups,
  type Tensor,
} from '@tsrun/training'
import { exampleRows, parameterValues, type Values } from '../../support/reference.ts'

const [INPUTS, CLASSES, BATCH] = [12, 4, 24]

export const build = (seed = 7) =>
  shardedMLP({ layers: 4, inputs: INPUTS, hidden: 16, outputs: CLASSES, seed }).build()

/** Rows [from, to) of a batch. */
export const part = (step: number, from: number, to: number) =>
  exampleRows(step, [from, to], { batch: BATCH, inputs: INPUTS, classes: CLASSES })

/** What one rank of a job does. */
export interface Training {
  readonly steps: number
  readonly optimizer: () => Optimizer
  /** Backward passes a step; default 1. */
  readonly passes?: number
  readonly model?: () => Module
}

interface Pass {
  readonly value: Tensor
  readonly backward: (dy: Tensor) => unknown
  readonly dispose: () => void
}

/** One forward and backward pass; the loss. */
export async function runPass(
  { inputs, labels }: { inputs: Tensor; labels: Tensor },
  record: (x: Tensor) => Pass | Promise<Pass>,
  lossOf: (logits: Tensor, labels: Tensor) => Tensor = crossEntropy,
): Promise<number> {
  const outputs = await record(inputs)
  const loss = recordLoss(lossOf, outputs.value, labels)
  const one = tf.scalar(1)
  const dy = loss.backward(one, () => undefined)!
  await outputs.backward(dy)
  const value = loss.value.dataSync()[0]!
  outputs.dispose()
  loss.dispose()
  tf.dispose([inputs, labels, one, dy])
  return value
}

/** A pass by a core that takes gradients. */
export function recorded(module: Module, x: Tensor, onGradient: GradientListener): Pass {
  const recording = recordModule(module, x, { needsInputGradient: false })
  return { ...recording, backward: (dy: Tensor) => recording.backward(dy, onGradient) }
}

/** The rows of a rank, in a pass of a step. */
export function shareOf(rank: number, ranks: number, pass = 0, passes = 1): [number, number] {
  const share = BATCH / ranks / passes
  const from = (rank * passes + pass) * share
  return [from, from + share]
}

/** Losses of all passes, and the parameters after each step. */
export interface Trace {
  readonly losses: number[]
  readonly parameters: Values[]
}

export async function trainReplica(
  group: ProcessGroup,
  { steps, optimizer: make, passes = 1, model = build }: Training,
  options: DataParallelOptions,
): Promise<Trace> {
  const module = model()
  const replica = await dataParallel(module, group, options)
  const optimizer = make()
  const trace: Trace = { losses: [], parameters: [] }
  for (let step = 0; step < steps; step++) {
    for (let pass = 0; pass < passes; pass++) {
      replica.synchronizes = pass === passes - 1
      const rows = part(step, ...shareOf(group.rank, group.size, pass, passes))
      const loss = await runPass(rows, (x) => recorded(module, x, replica.onGradient))
      trace.losses.push(loss)
    }
    optimizer.step(module.parameters, await replica.gradients())
    trace.parameters.push(parameterValues(module))
  }
  replica.dispose()
  optimizer.dispose()
  disposeModule(module)
  return trace
}

export async function trainSharded(
  world: ProcessGroup,
  group: ProcessGroup | ShardingGroups,
  { steps, optimizer: make, passes = 1, model = build }: Training,
  options: FullyShardOptions,
): Promise<Trace> {
  const module = model()
  const sharded = await fullyShard(module, group, options)
  const optimizer = make()
  const trace: Trace = { losses: [], parameters: [] }
  for (let step = 0; step < steps; step++) {
    for (let pass = 0; pass < passes; pass++) {
      sharded.synchronizes = pass === passes - 1
      const rows = part(step, ...shareOf(world.rank, world.size, pass, passes))
      trace.losses.push(await runPass(rows, (x) => sharded.record(x)))
    }
    await sharded.step(optimizer, await sharded.gradients())
    trace.parameters.push(await wholeValues(sharded))
  }
  sharded.dispose()
  optimizer.dispose()
  disposeModule(module)
  return trace
}

/** The parameters of all ranks together. */
export async function wholeValues(sharded: FullyShard): Promise<Values> {
  await sharded.gather()
  const values = parameterValues(sharded.module)
  sharded.release()
  return values
}
