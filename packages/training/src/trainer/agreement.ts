import { tsrError } from '@tsrun/core'
import { compareReplicas } from '../parallel/gradients/replicas.ts'
import { isTensor } from '../tfjs/tfjs.ts'
import type { AnyBatch } from './batch.ts'
import type { FitData } from './fit-data.ts'
import type { CheckedFitOptions } from './fit-options.ts'
import type { Layout } from './layout.ts'
import { clipOf, type CheckedOptions } from './options.ts'
import type { Trainer } from './trainer.ts'

/** The steps whose rates are compared. */
const SAMPLES = [0, 1, 10, 100, 1000]

/**
 * Checks that all ranks were given the same options: replicas with another learning rate, optimizer or
 * loss would become different models without a word. All ranks call it.
 *
 * @throws ERR_TSR_REPLICA on all ranks
 */
export async function compareOptions(options: CheckedOptions, { world }: Layout): Promise<void> {
  if (world.size === 1) return
  const { optimizer, loss } = options
  const clip = clipOf(options)
  const settings =
    optimizer &&
    Object.entries({ learningRate: optimizer.learningRate, ...optimizer.options })
      .map(
        ([name, value]) =>
          `${name} ${typeof value === 'function' ? 'a function' : JSON.stringify(value)}`,
      )
      .join(', ')
  const named = [
    'zero',
    'accumulate',
    'recompute',
    'microbatches',
    'schedule',
    'wire',
    'deterministic',
  ] as const
  const own = [
    `optimizer ${optimizer === undefined ? 'undefined' : `${optimizer.constructor.name} with ${settings}`}`,
    `loss ${loss === undefined ? 'undefined' : loss.name || 'a function'}`,
    `clip ${clip === undefined ? 'undefined' : `maxNorm ${clip.maxNorm}, norm ${clip.norm}`}`,
    `learningRate ${options.learningRate === undefined ? 'of the optimizer' : SAMPLES.map(options.learningRate).join(', ')}`,
    ...named.map((name) => `${name} ${JSON.stringify(options[name])}`),
  ]
  const all = await world.allGatherObject(own, { label: 'options of the trainer' })
  compareReplicas(all, world, 'options')
}

/**
 * Checks that all ranks call `fit` with the same options and as many examples. Otherwise they would
 * evaluate and save at different steps, or train on other parts of the data than they should. All ranks
 * call it.
 *
 * @throws ERR_TSR_REPLICA on all ranks
 */
export async function compareFit(
  options: CheckedFitOptions,
  data: FitData,
  { layout: { world } }: Pick<Trainer, 'layout'>,
): Promise<void> {
  if (world.size === 1) return
  const { evaluating, saving } = options
  const { size } = data as { readonly size?: unknown }
  const facts = {
    ...{ epochs: options.epochs, steps: options.steps, batch: options.batch, seed: options.seed },
    ...{ resume: options.resume, examples: typeof size === 'number' ? size : undefined },
    evaluate: evaluating && [evaluating.every, evaluating.batch],
    save: saving && [saving.every, saving.keep, saving.best],
  }
  const own = Object.entries(facts).map(([name, value]) => `${name} ${JSON.stringify(value)}`)
  compareReplicas(await world.allGatherObject(own, { label: 'options of fit' }), world, 'options')
}

/** A batch as the functions of `data/` make it: with the places of its examples in the data. */
interface Placed extends AnyBatch {
  readonly indices?: Int32Array
  readonly starts?: Int32Array
}

/**
 * Checks that the ranks that hold one replica together were given the same batch. Otherwise the inputs
 * of one rank would meet the labels of another. All ranks call it, in the first step.
 *
 * @throws ERR_TSR_ARGUMENT on all ranks
 */
export async function compareBatches(
  batch: AnyBatch,
  examples: number,
  { world, share, cp, pp }: Layout,
): Promise<void> {
  if (world.size === share[1]) return
  const { indices, starts, inputs, labels }: Placed = batch
  // Ranks with other parts of the sequences have other tokens of the same examples, and those of other
  // stages may have tensors that nobody reads.
  const arrays = cp.size > 1 ? [] : [inputs, labels].filter((part) => ArrayBuffer.isView(part))
  const tensors = cp.size > 1 || pp.size > 1 ? [] : [inputs, labels].filter(isTensor)
  const read = await Promise.all(tensors.map((tensor) => tensor.data()))
  const values = [indices, starts, ...arrays, ...read]
  const own = {
    replica: share[0],
    facts: [`${examples} examples`, ...values.map(describeValues)].join(''),
  }
  const all = await world.allGatherObject(own, { label: 'batches of the first step' })
  for (const [rank, { replica, facts }] of all.entries()) {
    const first = all.findIndex((other) => other.replica === replica)
    if (facts === all[first]!.facts) continue
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `the batch of rank ${rank}`,
      value: facts,
      expected: `${all[first]!.facts} as on rank ${first}, which has the same replica; the examples depend on run.share, not on the rank`,
    })
  }
}

const SHOWN = 4

/** The first values, and a sum that tells the others apart. */
function describeValues(values: ArrayLike<number> | undefined): string {
  if (values === undefined) return ''
  let hash = 0
  for (const value of Array.from(values)) {
    const bits = Number.isFinite(value) ? Math.round(value * 1e6) : 1
    hash = (Math.imul(hash, 31) + bits) | 0
  }
  const first = Array.from({ length: Math.min(SHOWN, values.length) }, (_, i) => values[i])
  const more = values.length > SHOWN ? `, … (hash ${(hash >>> 0).toString(16)})` : ''
  return `, ${first.join(', ')}${more}`
}
