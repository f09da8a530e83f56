import { argumentError, choice, declareOptions, flag, type Rules } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { describe } from '../../model/describe.ts'
import { ofKind, type Module, type Separable } from '../../model/module.ts'
import type { Embedding, Head } from '../../nn/embedding.ts'
import { isLinear, type JointLinear, type Linear } from '../../nn/linear.ts'
import {
  columnParallelLinear,
  rowParallelLinear,
  sequenceParallelLayer,
  vocabParallelEmbedding,
  vocabParallelHead,
  type ColumnParallelOptions,
  type LayerContext,
  type RowParallelOptions,
  type VocabParallelOptions,
} from './layers.ts'

/** Shards a layer. Returns the layer's replacement or, in a group of one rank, the layer itself. */
export type ParallelStyle = (layer: Module, group: ProcessGroup, name: string) => Module

/**
 * Maps layer names to parallel styles. In a name, `*` matches one part between dots, and `**`
 * matches any number of parts. If several names match a layer, the first one applies.
 */
export type ParallelPlan = Readonly<Record<string, ParallelStyle>>

const readColumnOptions = declareOptions({
  gather: choice('none', 'replicated', 'partial').default('none'),
  input: choice('replicated', 'sequence').default('replicated'),
} satisfies Rules<ColumnParallelOptions>)
const readRowOptions = declareOptions({
  input: choice('sharded', 'replicated').default('sharded'),
  output: choice('replicated', 'sequence').default('replicated'),
} satisfies Rules<RowParallelOptions>)
const readVocabOptions = declareOptions({
  sequence: flag.default(false),
} satisfies Rules<VocabParallelOptions>)

/**
 * Makes a style of a function that shards the layers for which `fits` is true.
 *
 * @param layers - describes these layers in an error
 */
function styleOf<L extends Module>(
  style: string,
  layers: string,
  fits: (layer: Module) => layer is L,
  shard: (layer: L, context: LayerContext) => Module,
): ParallelStyle {
  return (layer, group, name) => {
    if (!fits(layer)) {
      throw argumentError('plan', `${style} for ${name}`, `${layers} of that name`)
    }
    return group.size === 1 ? layer : shard(layer, { group, name })
  }
}

/**
 * Shards a linear layer by the columns of its weight: each rank gets all inputs and computes some
 * of the outputs.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option
 */
export function columnParallel(options: ColumnParallelOptions = {}): ParallelStyle {
  const checked = readColumnOptions(options)
  const fits = (layer: Module): layer is Linear | JointLinear => isLinear(layer) || isJoint(layer)
  return styleOf('columnParallel', 'a linear layer', fits, (layer, context) =>
    columnParallelLinear(layer, context, checked),
  )
}

/**
 * Shards a linear layer by the rows of its weight: each rank gets some of the inputs. The outputs
 * are summed over the ranks.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option
 */
export function rowParallel(options: RowParallelOptions = {}): ParallelStyle {
  const checked = readRowOptions(options)
  return styleOf('rowParallel', 'a linear layer', isLinear, (layer, context) =>
    rowParallelLinear(layer, context, checked),
  )
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
  const fits = (layer: Module): layer is Head | Embedding => isHead(layer) || isEmbedding(layer)
  return styleOf('vocabParallel', 'an Embedding or a Head', fits, (layer, context) =>
    isHead(layer)
      ? vocabParallelHead(layer, context, checked)
      : vocabParallelEmbedding(layer, context, checked),
  )
}

/**
 * Shards sequences by position: each rank runs the layer, with all its parameters, on its part of
 * each sequence.
 */
export function sequenceParallel(): ParallelStyle {
  const fits = (layer: Module): layer is Separable => 'forwardWith' in layer
  return styleOf('sequenceParallel', 'a norm or positions', fits, sequenceParallelLayer)
}

const isJoint = ofKind<JointLinear>('joint-linear')
const isEmbedding = ofKind<Embedding>('embedding')
const isHead = ofKind<Head>('head')

const makers: readonly unknown[] = [columnParallel, rowParallel, vocabParallel, sequenceParallel]

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
