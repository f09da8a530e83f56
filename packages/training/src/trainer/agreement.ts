import { argumentError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Optimizer } from '../optim/optimizer.ts'
import { compareReplicas } from '../parallel/gradients/replicas.ts'
import { isTensor, type Tensor } from '../tfjs/tfjs.ts'
import type { Reader } from '../parallel/pipeline/microbatches.ts'
import type { AnyBatch, BatchPart } from './batch.ts'
import type { Layout } from './layout.ts'
import type { CheckedOptions } from './options.ts'

/** The steps at which ranks compare the rates of their learning rate schedules. */
const SAMPLES = [0, 1, 10, 100, 1000]

/** The options of a trainer that ranks compare by value. */
const COMPARED = [
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

/** Checks that all ranks have the same options. Otherwise replicas would silently diverge. */
export async function compareOptions(options: CheckedOptions, { world }: Layout): Promise<void> {
  if (world.size === 1) return
  const { optimizer, plan, loss, clip, learningRate } = options
  await compareFacts(world, 'options of the trainer', {
    optimizer: optimizer && describeOptimizer(optimizer),
    plan: plan && `of ${Object.keys(plan).join(', ')}`,
    loss: loss && (loss.name || 'a function'),
    clip: clip && `maxNorm ${clip.maxNorm}`,
    learningRate: learningRate ? SAMPLES.map(learningRate).join(', ') : 'of the optimizer',
    ...Object.fromEntries(COMPARED.map((name) => [name, options[name]])),
  })
}

function describeOptimizer({ constructor, learningRate, options }: Optimizer): string {
  const settings = Object.entries({ learningRate, ...options })
  const shown = settings.map(([name, value]) => `${name} ${describeSetting(value)}`)
  return `${constructor.name} with ${shown.join(', ')}`
}

/** Formats numbers, strings and lists of them. Other values may not be comparable between processes. */
function describeSetting(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(describeSetting).join(', ')}]`
  if (typeof value === 'function') return 'a function'
  return typeof value === 'object' && value !== null ? 'an object' : String(value)
}

/** Checks that named values are the same on all ranks. All ranks must call this function. */
export async function compareFacts(
  world: ProcessGroup,
  label: string,
  facts: Readonly<Record<string, unknown>>,
): Promise<void> {
  if (world.size === 1) return
  const own = Object.entries(facts).map(([name, value]) => `${name} ${describeSetting(value)}`)
  compareReplicas(await world.allGatherObject(own, { label }), world, 'options')
}

/** A batch of a data loader or a text, which knows the indices of its examples. */
interface Placed extends AnyBatch {
  readonly indices?: Int32Array
  readonly starts?: Int32Array
}

/**
 * Checks that the ranks of one replica got the same batch. Otherwise the first stage could read inputs,
 * and the last stage labels, of different examples. All ranks must call this function in the first step.
 */
export async function compareBatches(
  batch: AnyBatch,
  examples: number,
  { world, share, cp }: Layout,
  { isFirst, isLast }: Reader,
): Promise<void> {
  if (world.size === share[1]) return
  const { indices, starts, inputs, labels }: Placed = batch
  const facts: Record<string, string> = {
    size: `${examples} examples`,
    indices: describeValues(indices),
    starts: describeValues(starts),
  }
  // Skip values that may legitimately differ. Context parallel ranks have different tokens of the same
  // examples. Middle pipeline stages may get tensors that they never read.
  const add = async (name: string, part: BatchPart, isRead: boolean) => {
    if (cp.size > 1 || !(isRead || ArrayBuffer.isView(part))) return
    facts[name] = describeValues(isTensor(part) ? await part.data() : part)
  }
  await add('inputs', inputs, isFirst)
  await add('labels', labels, isLast)
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

const SHOWN = 4

/** Describes values of a batch. A function that makes values is not called. */
function describeValues(values: Exclude<BatchPart, Tensor> | undefined): string {
  if (!ArrayBuffer.isView(values)) return 'unknown'
  const all = Array.from(values)
  let hash = 0
  for (const value of all) {
    // Convert both operands to 32-bit integers. In floating point, a large value would absorb the hash.
    hash = (Math.imul(hash, 31) + (Math.round(value * 1e6) | 0)) | 0
  }
  const more = all.length > SHOWN ? `, … (hash ${(hash >>> 0).toString(16)})` : ''
  return `${all.slice(0, SHOWN).join(', ')}${more}`
}
