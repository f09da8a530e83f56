import type { ProcessGroup } from '@tsrun/distributed'
import type { Parameter } from '../../model/parameter.ts'
import { compareReplicas } from '../data/replicas.ts'
import { checkSearch } from './check-search.ts'
import { checkTied } from './check-tied.ts'
import type { LayerSearch } from './model.ts'
import type { PipelineOptions } from './options.ts'
import type { Plan } from './plan.ts'
import type { LayerRange } from './split-layers.ts'

/** What a rank of a pipeline tells the others before the first pass. */
export interface RankFacts {
  /** What has to be the same on all ranks, in words. */
  readonly options: readonly string[]
  /** Where somebody has named layers. */
  readonly search: LayerSearch | undefined
  /** Of its stages, each name once. */
  readonly parameters: readonly Pick<Parameter, 'name' | 'shape'>[]
}

/**
 * Finds out, in one exchange, whether the parts that the ranks have are those of one pipeline: others
 * would train wrongly, or wait for messages that nobody sends. All ranks call it.
 *
 * @returns what each rank has told
 * @throws ERR_TSR_REPLICA naming the first option that is another one than on rank 0; ERR_TSR_ARGUMENT
 *   when a layer that was named is nowhere, or parameters of one name have different shapes; on all
 *   ranks
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
 * The options that all ranks have to agree about: not the loss, which is the last rank's alone, nor
 * `recompute`, with which the gradients are the same bits.
 *
 * @param split - the layers of all stages
 */
export function describeOptions(
  plan: Plan,
  split: readonly LayerRange[],
  { clip, optimizer }: PipelineOptions,
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
