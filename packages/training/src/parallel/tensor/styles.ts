import { argumentError, choice, declareOptions, flag } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { describe } from '../../model/describe.ts'
import { ofKind, type Module, type Separable } from '../../model/module.ts'
import type { Embedding, Head } from '../../nn/embedding.ts'
import { isLinear, type JointLinear } from '../../nn/linear.ts'
import {
  ColumnParallelLinear,
  RowParallelLinear,
  type ColumnParallelOptions,
  type RowParallelOptions,
} from './linear-layers.ts'
import { SequenceParallel } from './sequence.ts'
import {
  VocabParallelEmbedding,
  VocabParallelHead,
  type VocabParallelOptions,
} from './vocabulary.ts'

/** Shards a layer. Returns the layer's replacement or, in a group of one rank, the layer itself. */
export type ParallelStyle = (layer: Module, group: ProcessGroup, name: string) => Module

/**
 * Maps layer names to parallel styles. In a name, `*` matches one part between dots, and `**`
 * matches any number of parts. If several names match a layer, the first one applies.
 */
export type ParallelPlan = Readonly<Record<string, ParallelStyle>>

const sequence = flag.default(false)
const readColumnOptions: (given: ColumnParallelOptions) => Required<ColumnParallelOptions> =
  declareOptions({
    gather: choice('none', 'replicated', 'partial').default('none'),
    input: choice('replicated', 'sequence').default('replicated'),
  })
const readRowOptions: (given: RowParallelOptions) => Required<RowParallelOptions> = declareOptions({
  input: choice('sharded', 'replicated').default('sharded'),
  output: choice('replicated', 'sequence').default('replicated'),
})
const readVocabOptions: (given: VocabParallelOptions) => Required<VocabParallelOptions> =
  declareOptions({ sequence })

/**
 * Shards a linear layer by the columns of its weight: each rank gets all inputs and computes some
 * of the outputs.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option
 */
export function columnParallel(options: ColumnParallelOptions = {}): ParallelStyle {
  const checked = readColumnOptions(options)
  return (layer, group, name) => {
    if (!isLinear(layer) && !isJoint(layer)) throw misfit('columnParallel', name, 'a linear layer')
    return group.size === 1 ? layer : new ColumnParallelLinear(layer, { group, name }, checked)
  }
}

/**
 * Shards a linear layer by the rows of its weight: each rank gets some of the inputs. The outputs
 * are summed over the ranks.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option
 */
export function rowParallel(options: RowParallelOptions = {}): ParallelStyle {
  const checked = readRowOptions(options)
  return (layer, group, name) => {
    if (!isLinear(layer)) throw misfit('rowParallel', name, 'a linear layer')
    return group.size === 1 ? layer : new RowParallelLinear(layer, { group, name }, checked)
  }
}

/**
 * Shards an embedding or an output head by tokens. Each rank has the table rows of some tokens
 * (embedding), or computes the scores of some tokens (head). Scores are never gathered; see
 * `vocabParallelCrossEntropy`.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option
 */
export function vocabParallel(options: VocabParallelOptions = {}): ParallelStyle {
  const checked = readVocabOptions(options)
  return (layer, group, name) => {
    if (!isHead(layer) && !isEmbedding(layer)) {
      throw misfit('vocabParallel', name, 'an Embedding or a Head')
    }
    if (group.size === 1) return layer
    const context = { group, name }
    return isHead(layer)
      ? new VocabParallelHead(layer, context, checked)
      : new VocabParallelEmbedding(layer, context, checked)
  }
}

/**
 * Shards sequences by position: each rank runs the layer, with all its parameters, on its part of
 * each sequence.
 */
export function sequenceParallel(): ParallelStyle {
  return (layer, group, name) => {
    if (!('forwardWith' in layer)) throw misfit('sequenceParallel', name, 'a norm or positions')
    return group.size === 1 ? layer : new SequenceParallel(layer as Separable, { group, name })
  }
}

const isJoint = ofKind<JointLinear>('joint-linear')
const isEmbedding = ofKind<Embedding>('embedding')
const isHead = ofKind<Head>('head')

function misfit(style: string, name: string, expected: string) {
  return argumentError('plan', `${style} for ${name}`, `${expected} of that name`)
}

const makers: readonly unknown[] = [
  ...[columnParallel, rowParallel, vocabParallel, sequenceParallel],
]

/**
 * Checks that `plan` is an object of styles. `columnParallel` itself is not a style;
 * `columnParallel()` is.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function checkPlan(plan: ParallelPlan | null | undefined): void {
  if (typeof plan !== 'object' || plan === null) {
    throw refusal('plan', plan, 'styles by the names of layers')
  }
  for (const [glob, style] of Object.entries(plan)) {
    if (typeof style === 'function' && !makers.includes(style)) continue
    throw refusal(`${glob} of the plan`, style, 'a style, for example columnParallel()')
  }
}

function refusal(name: string, value: unknown, expected: string) {
  return argumentError(name, describe(value), expected)
}
