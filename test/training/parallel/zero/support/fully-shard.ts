import { runWorld } from '@tsrun/distributed'
import { Adam, AdamW, loadBackend, SGD, tf, type FullyShardOptions } from '@tsrun/training'
import { expectSame } from '../../support/reference.ts'
import { trainReplica, trainSharded, type Trace, type Training } from './training.ts'

export const optimizers = {
  SGD: () => new SGD({ learningRate: 0.1, momentum: 0.9 }),
  Adam: () => new Adam({ learningRate: 0.01 }),
  AdamW: () => new AdamW({ learningRate: 0.01, weightDecay: 0.1, withoutDecay: ['**.bias'] }),
}
export const STEPS = 6

export const stages = [
  { stage: 1 },
  { stage: 2 },
  { stage: 3 },
  { stage: 3, recompute: true },
] as const satisfies readonly FullyShardOptions[]

const references = new Map<string, Promise<Trace[]>>()

/** What dataParallel makes of the same, computed once for all stages. */
export function replicas(
  size: number,
  training: Training,
  options: FullyShardOptions,
): Promise<Trace[]> {
  const key = JSON.stringify([size, training, options]) + String(training.optimizer)
  const trained =
    references.get(key) ??
    runWorld({ size, seed: 1 }, (group) => trainReplica(group, training, options))
  references.set(key, trained)
  return trained
}

export const sharded = (size: number, training: Training, options: FullyShardOptions) =>
  runWorld({ size, seed: 2 }, (group) => trainSharded(group, group, training, options))

const jobs = [
  { size: 1, name: 'SGD', options: {} },
  { size: 2, name: 'SGD', options: {} },
  { size: 2, name: 'Adam', options: { bucketBytes: 600, firstBucketBytes: 100 } },
  { size: 2, name: 'Adam', options: { wire: 'bfloat16' } },
  { size: 2, name: 'AdamW', options: { wire: 'float16', bucketBytes: 500 } },
  { size: 3, name: 'SGD', options: { deterministic: true, bucketBytes: 500 } },
  { size: 4, name: 'AdamW', options: { deterministic: true } },
] as const

/** Whether to train with a ZeRO stage in a job, by their places in the lists. */
type Choice = (stage: number, job: number) => boolean

/** Each stage in a third of the jobs or more. */
export const isUsual: Choice = (stage, job) => (stage + job) % 3 === 0

/** Holds the bits of steps with sharded state against those of dataParallel. */
export function describeSteps(isChosen: Choice): void {
  beforeAll(() => loadBackend('wasm'))

  describe.each(stages.map((how, i) => ({ how, i })))('fullyShard with $how', ({ how, i }) => {
    it.each(jobs.filter((_, job) => isChosen(i, job)))(
      'makes bitwise the steps of dataParallel: $size ranks, $name, $options',
      async ({ size, name, options }) => {
        const before = tf.memory().numTensors
        const training = { steps: STEPS, optimizer: optimizers[name] }
        const wanted = await replicas(size, training, options)
        expectSame(await sharded(size, training, { ...options, ...how }), wanted)
        expect(tf.memory().numTensors).toBe(before)
      },
    )
  })
}
