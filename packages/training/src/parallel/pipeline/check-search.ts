import type { ProcessGroup } from '@tsrun/distributed'
import { planError } from '../tensor/plan-error.ts'
import type { PipelineModel } from './model.ts'

/**
 * Whether every layer that somebody has named is on one of the ranks. All of them call it.
 *
 * @throws ERR_TSR_ARGUMENT on all ranks
 */
export async function checkSearch(model: PipelineModel, group: ProcessGroup): Promise<void> {
  const own = model.search?.()
  if (own === undefined) return
  const all = await group.allGatherObject(own.missing, { label: 'layers of the plan' })
  const glob = own.missing.find((each) => all.every((missing) => missing.includes(each)))
  if (glob === undefined) return
  const names = await group.allGatherObject(own.names, { label: 'names of layers' })
  throw planError(glob, [...new Set(names.flat())])
}
