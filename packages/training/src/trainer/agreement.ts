import { argumentError } from '@tsrun/core'
import type { Optimizer } from '../optim/optimizer.ts'
import { compareReplicas } from '../parallel/gradients/replicas.ts'
import { isTensor } from '../tfjs/tfjs.ts'
import type { Reader } from '../parallel/pipeline/microbatches.ts'
import type { AnyBatch, BatchPart } from './batch.ts'
import { lengthOf, type FitData } from './fit-data.ts'
import type { CheckedFitOptions } from './fit-options.ts'
import type { Layout } from './layout.ts'
import { clipOf, type CheckedOptions } from './options.ts'
import type { Trainer } from './trainer.ts'

/** The steps at which ranks compare the rates of their learning rate schedules. */
const SAMPLES = [0, 1, 10, 100, 1000]

/**
 * Checks that all ranks have the same options. Replicas with different learning rates, optimizers or
 * losses would silently diverge. All ranks must call this function.
 *
 * @throws ERR_TSR_REPLICA on all ranks
 */
export async function compareOptions(options: CheckedOptions, { world }: Layout): Promise<void> {
  if (world.size === 1) return
  const { loss, plan } = options
  const clip = clipOf(options)
  const named = [
    'zero',
    'accumulate',
    'recompute',
    'frozen',
    'microbatches',
    'schedule',
    'unused',
    'chunks',
    'wire',
    'deterministic',
    'bucketBytes',
    'firstBucketBytes',
  ] as const
  const own = [
    `optimizer ${describeOptimizer(options.optimizer)}`,
    `plan ${plan === undefined ? 'undefined' : `of ${Object.keys(plan).join(', ')}`}`,
    `loss ${loss === undefined ? 'undefined' : loss.name || 'a function'}`,
    `clip ${clip === undefined ? 'undefined' : `maxNorm ${clip.maxNorm}`}`,
    `learningRate ${options.learningRate === undefined ? 'of the optimizer' : SAMPLES.map(options.learningRate).join(', ')}`,
    ...named.map((name) => `${name} ${describeSetting(options[name])}`),
  ]
  const all = await world.allGatherObject(own, { label: 'options of the trainer' })
  compareReplicas(all, world, 'options')
}

function describeOptimizer(optimizer: Optimizer | undefined): string {
  if (optimizer === undefined) return 'undefined'
  const settings = Object.entries({ learningRate: optimizer.learningRate, ...optimizer.options })
  const shown = settings.map(([name, value]) => `${name} ${describeSetting(value)}`)
  return `${optimizer.constructor.name} with ${shown.join(', ')}`
}

/** Formats numbers, strings and lists of them. Other values may not be comparable between processes. */
function describeSetting(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(describeSetting).join(', ')}]`
  if (typeof value === 'function') return 'a function'
  return typeof value === 'object' && value !== null ? 'an object' : String(value)
}

/**
 * Checks that all ranks call `fit` with the same options and equally many examples or batches. Otherwise
 * they would evaluate and save at different steps, or train on the wrong parts of the data. All ranks
 * must call this function.
 *
 * @throws ERR_TSR_REPLICA on all ranks
 */
export async function compareFit(
  options: CheckedFitOptions,
  data: FitData,
  { layout: { world } }: Pick<Trainer, 'layout'>,
): Promise<void> {
  if (world.size === 1) return
  const { epochs, steps, batch, seed, resume, evaluating, saving } = options
  const facts = {
    epochs,
    steps,
    batch,
    seed,
    resume,
    data: lengthOf(data),
    evaluate: evaluating && [evaluating.every, evaluating.batch, lengthOf(evaluating.data)],
    save: saving && [saving.every, saving.keep, saving.best],
  }
  const own = Object.entries(facts).map(([name, value]) => `${name} ${JSON.stringify(value)}`)
  compareReplicas(await world.allGatherObject(own, { label: 'options of fit' }), world, 'options')
}

/** A batch of a data loader or a text, which knows the indices of its examples. */
interface Placed extends AnyBatch {
  readonly indices?: Int32Array
  readonly starts?: Int32Array
}

/**
 * Checks that the ranks of one replica got the same batch. Otherwise the first stage could read inputs,
 * and the last stage labels, of different examples. All ranks must call this function in the first step.
 *
 * @param reader - which parts of the batch this rank reads
 * @throws ERR_TSR_ARGUMENT on all ranks
 */
export async function compareBatches(
  batch: AnyBatch,
  examples: number,
  { world, share, cp }: Layout,
  { isFirst, isLast }: Reader,
): Promise<void> {
  if (world.size === share[1]) return
  const { indices, starts, inputs, labels }: Placed = batch
  const parts = [
    ['inputs', inputs, isFirst],
    ['labels', labels, isLast],
  ] as const
  const facts: Record<string, string> = {
    size: `${examples} examples`,
    indices: describeValues(indices),
    starts: describeValues(starts),
  }
  // Skip values that may legitimately differ. Context parallel ranks have different tokens of the same
  // examples. Middle pipeline stages may get tensors that they never read.
  for (const [name, part, isRead] of cp.size === 1 ? parts : []) {
    if (isRead || ArrayBuffer.isView(part)) facts[name] = describeValues(await valuesOfPart(part))
  }
  const own = { replica: share[0], facts }
  const all = await world.allGatherObject(own, { label: 'batches of the first step' })
  for (const [rank, { replica, facts }] of all.entries()) {
    for (const [part, value] of Object.entries(facts)) {
      const first = all.findIndex((other) => other.replica === replica && part in other.facts)
      const wanted = all[first]!.facts[part]!
      if (value === wanted) continue
      throw argumentError(
        `the batch of rank ${rank}`,
        part === 'size' ? value : `one with the ${part} ${value}`,
        `${wanted} as on rank ${first}, which has the same replica; the examples depend on run.share, not on the rank`,
      )
    }
  }
}

/** Returns the values of an array or a tensor; undefined for a function, which is not called. */
async function valuesOfPart(part: BatchPart): Promise<ArrayLike<number> | undefined> {
  if (isTensor(part)) return await part.data()
  return ArrayBuffer.isView(part) ? part : undefined
}

const SHOWN = 4

function describeValues(values: ArrayLike<number> | undefined): string {
  if (values === undefined) return 'unknown'
  const all = Array.from(values)
  let hash = 0
  for (const value of all) {
    // Convert both operands to 32-bit integers. In floating point, a large value would absorb the hash.
    hash = (Math.imul(hash, 31) + (Math.round(value * 1e6) | 0)) | 0
  }
  const more = all.length > SHOWN ? `, … (hash ${(hash >>> 0).toString(16)})` : ''
  return `${all.slice(0, SHOWN).join(', ')}${more}`
}
