import { isTsrError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Parameter } from '../../model/parameter.ts'
import { compareReplicas } from '../gradients/replicas.ts'
import { unknownLayer, type LayerSearch } from '../recipe.ts'
import type { CheckedOptions } from './options.ts'
import type { Plan } from './plan.ts'
import type { LayerRange } from './split.ts'
import { checkTied } from './tied-parameters.ts'

/** The facts that the ranks of a pipeline exchange before the first pass. */
export interface RankFacts {
  /** The options that have to be the same on all ranks, in words. */
  readonly options: readonly string[]
  /** Set if the recipe names layers. */
  readonly search: LayerSearch | undefined
  /** The parameters of the rank's stages, each name once. */
  readonly parameters: readonly Pick<Parameter, 'name' | 'shape'>[]
  /** Whether a stage of the rank communicates with replicas in its passes. */
  readonly communicates: boolean
}

/**
 * Checks in one exchange that the ranks have parts of the same pipeline. Otherwise they would train
 * wrongly, or wait for messages that are never sent. All ranks call it.
 *
 * @returns the facts of all ranks
 * @throws on all ranks: ERR_TSR_REPLICA naming the first option that differs from rank 0; ERR_TSR_ARGUMENT
 *   when no rank has a layer that was named, or when parameters with the same name have different shapes
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
  checkSearch(all.map(({ search }) => search))
  checkTied(all.map(({ parameters }) => parameters))
  return all
}

/**
 * Explains a size mismatch between a sent and an expected activation: the stages cut batches of
 * different sizes.
 *
 * @returns the error to throw in place of `error`
 */
export function explainSizes(error: unknown, examples: number): unknown {
  if (!isTsrError(error) || error.code !== 'ERR_TSR_MISMATCH') return error
  const { mine, theirs } = error.facts as { readonly mine: string; readonly theirs: string }
  if (![mine, theirs].every((call) => call.startsWith('send/recv'))) return error
  return tsrError(
    'ERR_TSR_ARGUMENT',
    {
      name: 'the batch of this rank',
      value: `one of ${examples} examples`,
      expected: `as many, of the same shape, as on the rank that runs ${theirs}, not ${mine}`,
    },
    { cause: error },
  )
}

/**
 * Describes the options that have to be the same on all ranks. The loss may differ, as only the last
 * rank uses it; so may `recompute`, as it does not change the gradients.
 *
 * @param split - the layers of all stages
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

/** @throws ERR_TSR_ARGUMENT when no rank has a layer that was named */
function checkSearch(searches: readonly (LayerSearch | undefined)[]): void {
  const all = searches.filter((search) => search !== undefined)
  const glob = all[0]?.missing.find((each) => all.every(({ missing }) => missing.includes(each)))
  if (glob === undefined) return
  throw unknownLayer(glob, [...new Set(all.flatMap(({ names }) => names))])
}
