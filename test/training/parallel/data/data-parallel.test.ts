import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  crossEntropy,
  dataParallel,
  disposeModule,
  loadBackend,
  record,
  SGD,
  shardedMLP,
  summedCrossEntropy,
  tf,
  type DataParallel,
  type DataParallelOptions,
  type Module,
  type Tensor,
} from '@tsrun/training'
import { errorOf } from '../../../distributed/support/outcome.ts'
import {
  exampleBatch,
  exampleRows,
  excess,
  parameterValues,
  singleProcessStep,
  values,
  type Snapshot,
} from '../support/reference.ts'

const [STEPS, INPUTS, CLASSES, BATCH] = [20, 12, 4, 24]
const build = (seed = 7) =>
  shardedMLP({ layers: 4, inputs: INPUTS, hidden: 16, outputs: CLASSES, seed }).build()

/** Rows [from, to) of a batch. */
const part = (step: number, from: number, to: number) =>
  exampleRows(step, [from, to], { batch: BATCH, inputs: INPUTS, classes: CLASSES })

type Loss = (logits: Tensor, labels: Tensor) => Tensor

/** One backward pass over rows of a batch; the loss. */
function backward(
  { module, onGradient }: Pick<DataParallel<Module>, 'module' | 'onGradient'>,
  { inputs, labels }: { inputs: Tensor; labels: Tensor },
  loss: Loss = crossEntropy,
): number {
  const recording = record((x) => loss(module.forward(x), labels), inputs, module.parameters, {
    needsInputGradient: false,
  })
  const one = tf.scalar(1)
  recording.backward(one, onGradient)
  const value = recording.value.dataSync()[0]!
  recording.dispose()
  tf.dispose([inputs, labels, one])
  return value
}

function trainSingle(steps = STEPS): Snapshot[] {
  const module = build()
  const optimizer = new SGD({ learningRate: 0.1 })
  const snapshots = Array.from({ length: steps }, (_, step) =>
    singleProcessStep(module, exampleBatch(step, BATCH, INPUTS, CLASSES), optimizer),
  )
  disposeModule(module)
  return snapshots
}

async function trainReplica(
  group: ProcessGroup,
  options: DataParallelOptions,
  passes = 1,
): Promise<Snapshot[]> {
  // rank 0 decides what all begin with
  const module = build(group.rank === 0 ? 7 : 100 + group.rank)
  const replica = await dataParallel(module, group, options)
  const optimizer = new SGD({ learningRate: 0.1 })
  const share = BATCH / group.size / passes
  const snapshots: Snapshot[] = []
  for (let step = 0; step < STEPS; step++) {
    let loss = 0
    for (let pass = 0; pass < passes; pass++) {
      const from = (group.rank * passes + pass) * share
      replica.synchronizes = pass === passes - 1
      loss += backward(replica, part(step, from, from + share))
    }
    const gradients = await replica.gradients()
    if (passes > 1) {
      for (const [name, gradient] of gradients) {
        gradients.set(name, tf.keep(tf.div(gradient, passes)))
        gradient.dispose()
      }
    }
    const snapshot = { loss: loss / passes, gradients: values(gradients) }
    optimizer.step(module.parameters, gradients)
    snapshots.push({ ...snapshot, parameters: parameterValues(module) })
  }
  replica.dispose()
  disposeModule(module)
  return snapshots
}

function expectSame(ranks: Snapshot[][], single: Snapshot[], rtol = 1e-5, atol = 1e-6): void {
  for (const [step, wanted] of single.entries()) {
    const loss = ranks.reduce((sum, rank) => sum + rank[step]!.loss, 0) / ranks.length
    expect(Math.abs(loss - wanted.loss)).toBeLessThanOrEqual(atol + rtol * wanted.loss * 10)
    for (const rank of ranks) {
      expect(excess(rank[step]!.gradients, wanted.gradients, rtol, atol)).toBeLessThanOrEqual(0)
      expect(excess(rank[step]!.parameters, wanted.parameters, rtol, atol)).toBeLessThanOrEqual(0)
    }
  }
}

beforeAll(async () => {
  await loadBackend('wasm')
})

describe('data parallel replicas', () => {
  it.each([
    { size: 1, options: {} },
    { size: 2, options: {} },
    { size: 4, options: {} },
    { size: 4, options: { bucketBytes: 600, firstBucketBytes: 100 } },
    { size: 3, options: { bucketBytes: 1 } },
  ])('of $size ranks with $options train like a single process', async ({ size, options }) => {
    const before = tf.memory().numTensors
    const ranks = await runWorld({ size, seed: size }, (group) => trainReplica(group, options))
    expectSame(ranks, trainSingle())
    expect(tf.memory().numTensors).toBe(before)
    for (const rank of ranks)
      expect(rank.at(-1)).toEqual({ ...ranks[0]!.at(-1), loss: rank.at(-1)!.loss })
  })

  it('accumulate gradients without communication', async () => {
    const ranks = await runWorld({ size: 2, seed: 1 }, (group) => trainReplica(group, {}, 3))
    expectSame(ranks, trainSingle())
  })

  it.each([
    { wire: 'bfloat16', rtol: 2 ** -6 },
    { wire: 'float16', rtol: 2 ** -9 },
  ] as const)('send gradients as $wire, with its precision', async ({ wire, rtol }) => {
    const ranks = await runWorld({ size: 2, seed: 1 }, (group) => trainReplica(group, { wire }))
    const [first] = trainSingle(1)
    for (const rank of ranks) {
      expect(excess(rank[0]!.gradients, first!.gradients, rtol, rtol / 8)).toBeLessThanOrEqual(0)
    }
    expect(ranks[0]!.at(-1)!.parameters).toEqual(ranks[1]!.at(-1)!.parameters)
  })

  it('divide by the number of all examples if replicas have different numbers', async () => {
    const bounds = [0, 5, 24]
    const gradients = await runWorld({ size: 2, seed: 4 }, async (group) => {
      const module = build()
      const replica = await dataParallel(module, group, { reduction: 'token' })
      const [from, to] = bounds.slice(group.rank) as [number, number]
      backward(replica, part(0, from, to), summedCrossEntropy)
      const taken = await replica.gradients(to - from)
      const result = values(taken)
      tf.dispose([...taken.values()])
      replica.dispose()
      disposeModule(module)
      return result
    })
    const [single] = trainSingle(1)
    for (const rank of gradients) expect(excess(rank, single!.gradients)).toBeLessThanOrEqual(0)
  })

  it('send each gradient once, in one operation per bucket', async () => {
    await runWorld({ size: 2, seed: 2 }, async (group) => {
      const module = build()
      const elements = module.parameters.reduce((sum, { value }) => sum + value.size, 0)
      const sent = (): number =>
        group.linkStatistics().reduce((sum, { bytesSent }) => sum + bytesSent, 0)
      const replica = await dataParallel(module, group, { bucketBytes: 1024, firstBucketBytes: 64 })
      expect(replica.traffic.bytes).toBe(4 * elements)
      for (let step = 0; step < 3; step++) {
        const before = sent()
        backward(replica, part(step, 12 * group.rank, 12 * group.rank + 12))
        const gradients = await replica.gradients()
        tf.dispose([...gradients.values()])
        // the first step also agrees on an order
        if (step > 0) {
          const headers = sent() - before - 4 * elements
          expect(headers).toBeGreaterThan(0)
          expect(headers / 64).toBeLessThanOrEqual(4 * replica.traffic.collectives)
        }
      }
      replica.synchronizes = false
      const before = sent()
      backward(replica, part(0, 0, 12))
      expect(sent()).toBe(before)
      replica.dispose()
      disposeModule(module)
    })
  })

  it('do not change frozen parameters, and name the unused ones', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      const module = build()
      const frozen = ['layers.0.weight', 'layers.0.bias']
      const replica = await dataParallel(module, group, { frozen })
      backward(replica, part(0, 0, 12))
      const gradients = await replica.gradients()
      expect([...gradients.keys()].sort()).toEqual(
        module.parameters
          .map(({ name }) => name)
          .filter((name) => !frozen.includes(name))
          .sort(),
      )
      tf.dispose([...gradients.values()])
      replica.dispose()

      const strict = await dataParallel(module, group)
      const error = await errorOf(() => strict.gradients())
      expect(error).toMatchObject({ code: 'ERR_TSR_UNUSED_PARAMETERS' })
      expect(error?.message).toContain('layers.3.bias')
      strict.dispose()
      disposeModule(module)
    })
  })

  it('refuse a different model, and a gradient after the last one of a step', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      const odd = shardedMLP({
        layers: 2,
        inputs: 4,
        hidden: group.rank === 0 ? 3 : 5,
        outputs: 2,
      }).build()
      const error = await errorOf(() => dataParallel(odd, group))
      expect(error).toMatchObject({ code: 'ERR_TSR_REPLICA', facts: { rank: 1 } })
      expect(error?.message).toContain('layers.0.weight [4, 5], not layers.0.weight [4, 3]')
      disposeModule(odd)
      const module = build()
      const unknown = await errorOf(() => dataParallel(module, group, { frozen: ['nobody'] }))
      expect(unknown).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      const replica = await dataParallel(module, group)
      backward(replica, part(0, 0, 12))
      expect(() => backward(replica, part(0, 0, 12))).toThrow('synchronizes')
      // who knows what the others have got
      const late = await errorOf(() => replica.gradients())
      expect(late).toMatchObject({ code: 'ERR_TSR_REPLICA_ENDED' })
      replica.dispose()
      disposeModule(module)
    })
  })
})
