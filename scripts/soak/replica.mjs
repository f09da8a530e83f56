// One rank of the soak in place: a replica that continues when others are lost, and when they come back.
//
//   replica.mjs <steps> <milliseconds between steps> <steps without those that were lost>
import { setTimeout as pause } from 'node:timers/promises'
import { isTsrError, seededRandom } from '@tsrun/core'
import { initProcessGroup, reconfigure } from '@tsrun/distributed'
import {
  batches,
  examples,
  loadBackend,
  replaceValue,
  SGD,
  shardedMLP,
  tensorFrom,
  trainer,
  writeTo,
} from '@tsrun/training'

const BATCH = 48
const TIMEOUT = 60_000
const [steps, milliseconds, absence] = process.argv.slice(2).map(Number)
const random = seededRandom(1)
/**
 * A convex problem: what the order of a sum changes stays small, however long the training is. A deeper network
 * makes it a hundred times larger every thousand steps.
 */
const data = examples({
  inputs: { values: Float32Array.from({ length: 256 * 960 }, () => random() - 0.5), shape: [256] },
  labels: Int32Array.from({ length: 960 }, () => Math.floor(16 * random())),
})
const recipe = shardedMLP({ layers: 1, inputs: 256, outputs: 16, seed: 1 })

await loadBackend()
let group = await initProcessGroup({ timeout: TIMEOUT })
const { rank, size } = group
let replica = await replicaOn(group, group.generation > 0 ? undefined : { step: 0, lostAt: 0 })
while (replica.step < steps) {
  try {
    if (replica.group !== group) {
      const before = replica.run
      replica = await replicaOn(group, replica)
      before.dispose()
    }
    if (group.size < size && replica.step >= replica.lostAt + absence) {
      if (group.rank === 0) say({ kind: 'waits' })
      group = await reconfigure({ timeout: TIMEOUT })
      continue
    }
    await makeStep(replica)
    // what V8 could free and has not is no growth: its heap, and the shared memory of worlds before
    if (replica.step % 50 === 0) globalThis.gc()
    if (milliseconds > 0) await pause(milliseconds)
  } catch (error) {
    // A rank was lost in the middle of a step. Which ranks still completed it does not matter.
    if (!isTsrError(error)) throw error
    replica.lostAt = replica.step
    group = await group.shrink({ timeout: TIMEOUT })
  }
}
const values = replica.run.parameters.map(({ value }) =>
  Buffer.from(value.dataSync().slice().buffer),
)
const parameters = Buffer.concat(values).toString('base64')
say({ kind: 'end', rank, steps: replica.step, parameters })
replica.run.dispose()
await group.destroy()

async function makeStep(replica) {
  const { run, step } = replica
  const order = { batch: BATCH, seed: 1, epoch: Math.floor(step / 20), start: (step % 20) * BATCH }
  const [part] = batches(data, { ...order, share: run.share })
  const { loss } = await run.step(part)
  replica.step++
  // every example of the batch, once
  const seen = (await group.allGatherObject([...part.indices])).flat()
  const [{ indices }] = batches(data, order)
  if (String(seen.sort(byNumber)) !== String(indices.toSorted())) {
    throw new Error(`step ${step}: the ranks have seen ${seen}, not ${indices}`)
  }
  if (group.rank === 0) say({ kind: 'step', step: replica.step, loss, ranks: group.size })
}

/**
 * A replica with the parameters of the rank that has come farthest.
 *
 * @param own - the replica of this rank before; undefined for a rank that is new
 */
async function replicaOn(group, own) {
  const all = await group.allGatherObject([own?.step ?? -1, own?.lostAt ?? -1])
  const step = Math.max(...all.map(([made]) => made))
  const lostAt = Math.max(...all.map(([, lost]) => lost))
  const source = all.findIndex(([made]) => made === step)
  const optimizer = new SGD({ learningRate: 0.1 })
  const run = await trainer(recipe, { mesh: group, optimizer })
  if (step === 0) return { group, run, step, lostAt }
  for (const [i, parameter] of run.parameters.entries()) {
    const { shape } = parameter
    const values = group.alloc(
      'float32',
      shape.reduce((a, b) => a * b, 1),
    )
    if (group.rank === source) await writeTo(own.run.parameters[i].value, values)
    await group.broadcast(values, source)
    replaceValue(parameter, tensorFrom(values.slice(), shape))
    group.free(values)
  }
  return { group, run, step, lostAt }
}

function byNumber(a, b) {
  return a - b
}

function say(said) {
  process.stdout.write(`${JSON.stringify(said)}\n`)
}
