import { argumentError, isTsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Parameter } from '../../model/parameter.ts'
import { compareReplicas } from '../gradients/replicas.ts'
import { checkSearch, type LayerSearch } from '../recipe.ts'
import type { CheckedOptions } from './options.ts'
import type { Plan } from './plan.ts'
import type { LayerRange } from './split.ts'
import { checkTied } from './tied-parameters.ts'

/** The properties of a rank that the ranks of a pipeline compare before the first pass. */
export interface RankFacts {
  /** The options that must be the same on all ranks, as text for error messages. */
  readonly options: readonly string[]
  /** The result of the recipe's search for layer names; undefined if the recipe names no layers. */
  readonly search: LayerSearch | undefined
  /** For each stage of the rank, its layers, and the patterns of `recompute` that match none. */
  readonly recomputed: readonly LayerSearch[]
  /** The parameters of the rank's stages. A parameter of several stages is listed once. */
  readonly parameters: readonly Pick<Parameter, 'name' | 'shape'>[]
  /** Whether a stage of the rank communicates with replicas in its passes. */
  readonly communicates: boolean
}

/**
 * Checks that all ranks have parts of the same pipeline. Otherwise they might train a wrong model,
 * or wait for messages that are never sent. All ranks call it.
 *
 * @returns the properties of all ranks
 * @throws ERR_TSR_REPLICA on all ranks, naming the first option that differs from rank 0;
 *   ERR_TSR_ARGUMENT on all ranks when a layer name matches no layer of any rank, or when
 *   parameters with the same name have different shapes
 */
export async function compareRanks(
  own: RankFacts,
  group: ProcessGroup,
): Promise<readonly RankFacts[]> {
  const label = 'options and parameters of the pipeline'
  const all = group.size === 1 ? [own] : await group.allGatherObject(own, { label })
  compareReplicas(
    all.map(({ options }) => options),
    group,
    'options',
  )
  checkSearch(
    'plan',
    all.map(({ search }) => search),
  )
  checkSearch(
    'recompute',
    all.flatMap(({ recomputed }) => recomputed),
  )
  checkTied(all.map(({ parameters }) => parameters))
  return all
}

/**
 * Replaces an error about message sizes by one that names the cause: the batches of two ranks have
 * different numbers of examples.
 *
 * @returns the error to throw instead of `error`
 */
export function explainSizes(error: unknown, examples: number): unknown {
  if (!isTsrError(error) || error.code !== 'ERR_TSR_MISMATCH') return error
  const { mine, theirs } = error.facts as { readonly mine: string; readonly theirs: string }
  if (![mine, theirs].every((call) => call.startsWith('send/recv'))) return error
  return argumentError(
    'the batch of this rank',
    `one of ${examples} examples`,
    `as many, of the same shape, as on the rank that runs ${theirs}, not ${mine}`,
    { cause: error },
  )
}

/**
 * Describes the options that must be the same on all ranks. Leaves out the loss, because only the
 * last rank uses it, and `recompute`, because it does not change gradients.
 *
 * @param split - the layers of each stage
 */
export function describeOptions(
  plan: Plan,
  split: readonly LayerRange[],
  { clip, optimizer }: CheckedOptions,
): string[] {
  const limit = clip && `maxNorm ${clip.maxNorm}, norm ${clip.norm ?? 2}`
  const rate = optimizer && `${optimizer.constructor.name}, learningRate ${optimizer.learningRate}`
  return [
    ...plan.describe(),
    `split [${split.map(({ from, to }) => to - from).join(', ')}]`,
    `clip ${limit ?? 'undefined'}`,
    `optimizer ${rate ?? 'undefined'}`,
  ]
}
