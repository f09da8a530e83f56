// One rank of examples/recovery.ts: it trains, and continues when others are lost or come back.

import { isTsrError } from '@tsrun/core'
import { initProcessGroup, reconfigure, type ProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { describeBackend } from './job.ts'

/** What all ranks are started with. */
export interface Plan {
  readonly steps: number
  readonly batch: number
  readonly seed: number
  readonly lr: number
  /** From this step on, ranks that have lost another wait for its return. */
  readonly returnAt: number
}

/** What a rank says, as a line of JSON. */
export type Said =
  | { readonly kind: 'backend'; readonly text: string }
  | { readonly kind: 'step'; readonly step: number; readonly loss: number; readonly ranks: number }
  | { readonly kind: 'waits' }
  | { readonly kind: 'end'; readonly loss: number }

/** A replica on a group of ranks, and the steps that its parameters have behind them. */
interface Replica {
  readonly group: ProcessGroup
  readonly run: training.Trainer
  step: number
}

const train = training.mnist({ split: 'train' })

export async function trainRank(plan: Plan): Promise<void> {
  const backend = await training.loadBackend()
  let group = await initProcessGroup({ timeout: 60_000 })
  if (group.rank === 0) say({ kind: 'backend', text: describeBackend(backend) })
  const { size, generation } = group
  let replica = await replicaOn(group, plan, generation > 0 ? undefined : { step: 0 })
  while (replica.step < plan.steps) {
    try {
      if (group.size < size && replica.step >= plan.returnAt) {
        if (group.rank === 0) say({ kind: 'waits' })
        group = await reconfigure()
      }
      if (replica.group !== group) replica = await continueOn(group, replica, plan)
      await makeStep(replica, plan)
    } catch (error) {
      // A rank was lost, in the middle of a step or before the replica was on its new group. Which ranks
      // still completed the step does not matter.
      if (!isTsrError(error)) throw error
      group = await group.shrink({ timeout: 60_000 })
    }
  }
  const loss = await finalLoss(replica)
  if (replica.group.rank === 0) say({ kind: 'end', loss })
  replica.run.dispose()
  await group.destroy()
}

async function makeStep(replica: Replica, { batch, seed }: Plan): Promise<void> {
  const { run, step, group } = replica
  const perEpoch = Math.floor(train.size / batch)
  const epoch = Math.floor(step / perEpoch)
  const start = (step % perEpoch) * batch
  const [part] = training.batches(train, { batch, seed, epoch, start, share: run.share })
  const { loss } = await run.step(part!)
  replica.step++
  if (group.rank === 0) say({ kind: 'step', step: replica.step, loss, ranks: group.size })
}

/** A replica on another group, with the parameters and the step that this one has. */
async function continueOn(group: ProcessGroup, from: Replica, plan: Plan): Promise<Replica> {
  const { step, run } = from
  const next = await replicaOn(group, plan, { step, run })
  run.dispose()
  return next
}

/**
 * A replica whose parameters are those of the rank that has come farthest. A rank that is new has none.
 */
async function replicaOn(
  group: ProcessGroup,
  { seed, lr }: Plan,
  own: { readonly step: number; readonly run?: training.Trainer } | undefined,
): Promise<Replica> {
  const steps = await group.allGatherObject(own?.step ?? -1)
  const step = Math.max(...steps)
  const source = steps.indexOf(step)
  const run = await training.trainer(training.shardedMLP({ layers: 4, hidden: 64, seed }), {
    mesh: group,
    optimizer: new training.SGD({ learningRate: lr }),
  })
  if (step > 0) {
    for (const [i, parameter] of run.parameters.entries()) {
      const values = group.alloc(
        'float32',
        parameter.shape.reduce((a, b) => a * b, 1),
      )
      const mine = own?.run?.parameters[i]
      if (group.rank === source) await training.writeTo(mine!.value, values)
      await group.broadcast(values, source)
      training.replaceValue(parameter, training.tensorFrom(values.slice(), parameter.shape))
      group.free(values)
    }
  }
  return { group, run, step }
}

async function finalLoss({ run }: Replica): Promise<number> {
  const test = training.batches(train, { batch: 1000, shuffle: false, share: run.share })
  const { loss } = await run.evaluate(test)
  return loss
}

function say(said: Said): void {
  process.stdout.write(`${JSON.stringify(said)}\n`)
}
