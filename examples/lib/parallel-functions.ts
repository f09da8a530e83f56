import { initProcessGroup, type ProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'

const { columnParallel, rowParallel, tf } = training

/** What is trained. It is plain data, so that it can be sent to other processes. */
export interface Plan {
  readonly steps: number
  /** Rows of a batch of all replicas together. */
  readonly batch: number
  readonly width: number
  readonly seed: number
  readonly lr: number
}

const LAYERS = 4

function network({ width, seed }: Plan): training.ShardedMLP {
  return training.shardedMLP({ layers: LAYERS, hidden: width, seed }).build()
}

/** Batches of MNIST, or a share of each. */
function* examples({ steps, batch, seed }: Plan, share?: readonly [number, number]) {
  const train = training.mnist({ split: 'train' })
  let step = 0
  for (const examples of training.batches(train, { batch, seed, ...(share && { share }) })) {
    yield examples
    if (++step === steps) return
  }
}

/** The forward and backward pass of a batch, whose gradients are passed to `onGradient`. */
function pass(
  model: training.Module,
  { inputs, labels }: training.ExampleBatch,
  onGradient: training.GradientListener,
): number {
  const [x, y, one] = [inputs(), labels(), tf.scalar(1)]
  const outputs = training.recordModule(model, x, { needsInputGradient: false })
  const loss = training.recordLoss(training.crossEntropy, outputs.value, y)
  const dy = loss.backward(one, () => undefined)!
  outputs.backward(dy, onGradient)
  const [value] = loss.value.dataSync()
  outputs.dispose()
  loss.dispose()
  tf.dispose([x, y, one, dy])
  return value!
}

/** Trains `model`, which is the whole or the part of one rank. Returns the loss of each step. */
function trainAlone(model: training.Module, plan: Plan): number[] {
  const optimizer = new training.SGD({ learningRate: plan.lr })
  const losses = Array.from(examples(plan), (batch) => {
    const gradients = new Map<string, training.Tensor>()
    const loss = pass(model, batch, training.sumInto(gradients))
    optimizer.step(model.parameters, gradients)
    return loss
  })
  training.disposeModule(model)
  return losses
}

/** Trains in a single process, whose losses the others must reach. */
export async function singleProcess(plan: Plan): Promise<number[]> {
  return await Promise.resolve(trainAlone(network(plan), plan))
}

/** Every rank has the whole network, and a share of each batch. */
export async function trainDataParallel(group: ProcessGroup, plan: Plan): Promise<number[]> {
  const model = network(plan)
  const replica = await training.dataParallel(model, group)
  const optimizer = new training.SGD({ learningRate: plan.lr })
  const losses: number[] = []
  for (const batch of examples(plan, [group.rank, group.size])) {
    const loss = Float64Array.of(pass(model, batch, replica.onGradient))
    optimizer.step(model.parameters, await replica.gradientViews())
    await group.allReduce(loss, { op: 'avg' })
    losses.push(loss[0]!)
  }
  replica.dispose()
  return losses
}

/** Each rank has some of the layers, and a batch passes through them in micro-batches. */
export async function trainPipeline(group: ProcessGroup, plan: Plan): Promise<number[]> {
  const { width, seed, lr } = plan
  const pipe = training.pipeline(
    training.shardedMLP({ layers: LAYERS, hidden: width, seed }),
    group,
    {
      schedule: '1f1b',
      microbatches: 4,
      optimizer: new training.SGD({ learningRate: lr }),
    },
  )
  const losses: number[] = []
  for (const batch of examples(plan)) losses.push((await pipe.step(batch)).loss)
  pipe.dispose()
  return losses
}

/** Each rank has a part of every layer. It must be a separate process because its collectives block. */
export async function tensorRank(_rank: number, plan: Plan): Promise<number[]> {
  await training.loadBackend()
  const group = await initProcessGroup()
  const layers: training.ParallelPlan = {
    'layers.0': columnParallel(),
    'layers.1': rowParallel(),
    'layers.2': columnParallel({ gather: 'replicated' }),
  }
  const losses = trainAlone(training.parallelize(network(plan), layers, group), plan)
  await group.destroy()
  return losses
}
