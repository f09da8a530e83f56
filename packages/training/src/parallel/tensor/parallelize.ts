import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Module } from '../../model/module.ts'
import { matchName } from '../../model/name-patterns.ts'
import { modulesOf } from '../../model/module.ts'
import type { PipelineModel } from '../pipeline/model.ts'
import { isReplicated } from '../data/replicated.ts'
import { checkGroup } from '../check-group.ts'
import { checkPlan } from './check-plan.ts'
import { connectPartialGathers } from './partial-gathers.ts'
import { planError } from './plan-error.ts'
import { isCut } from './shard.ts'
import type { ParallelStyle } from './styles.ts'

/**
 * By name of a module, `*` for one part between dots and `**` for any number of them: the first that
 * fits decides.
 */
export type ParallelPlan = Readonly<Record<string, ParallelStyle>>

/**
 * Shares the layers of a model among the ranks of a group (Megatron-LM's tensor parallelism; as
 * torch's parallelize_module), in place: modules that the plan names give way to those that do a part
 * of their work. Parameters keep their names; each rank holds its part of those that are cut (see
 * `Parameter.shard`), and the others in full.
 *
 * A recipe for a pipeline becomes one whose slices are shared. Not every slice has all the layers: the
 * first pass of the pipeline refuses names that no rank has found. In a group of one rank the model
 * stays as it is.
 *
 * The passes block inside collectives, or with `recordSegments` await them: all ranks run the same
 * layers in the same order.
 *
 * @example
 * const model = parallelize(new GPT(), gptPlan(), mesh.tp)
 * const pipe = pipeline(parallelize(gpt(), gptPlan(), mesh.tp), mesh.pp)
 *
 * @throws ERR_TSR_ARGUMENT without a plan of styles or a group, when the plan names no layer, a layer
 *   cannot be divided, a gather `partial` is in front of another kind of layer, a tied parameter would
 *   be cut for one of its layers only, or the model is replicated already
 */
export function parallelize<M extends Module>(model: M, plan: ParallelPlan, group: ProcessGroup): M
export function parallelize(
  recipe: PipelineModel,
  plan: ParallelPlan,
  group: ProcessGroup,
): PipelineModel
export function parallelize(
  target: Module | PipelineModel,
  plan: ParallelPlan,
  group: ProcessGroup,
): Module | PipelineModel {
  checkPlan(plan)
  checkGroup(group)
  if (!('slice' in target)) {
    refuseUnmatched(target, plan)
    return share(target, plan, group)
  }
  const seen = new Set<string>()
  return {
    layers: target.layers,
    slice: (from, to) => {
      const module = target.slice(from, to)
      for (const { name } of modulesOf(module)) seen.add(name)
      return share(module, plan, group)
    },
    search: () => {
      const before = target.search?.()
      const names = [...new Set([...seen, ...(before?.names ?? [])])]
      return { missing: [...missingFrom(names, plan), ...(before?.missing ?? [])], names }
    },
  }
}

function share<M extends Module>(model: M, plan: ParallelPlan, group: ProcessGroup): M {
  const entries = Object.entries(plan).map(([glob, style]) => ({ fits: matchName(glob), style }))
  refuseReplicated(model)
  for (const { name, module, replace } of modulesOf(model)) {
    const entry = entries.find(({ fits }) => fits(name))
    const next = entry?.style(module, group, name) ?? module
    if (next !== module) replace(next)
  }
  refuseHalfTied(model)
  connectPartialGathers(model)
  return model
}

/** What takes the place of their parameters would send no gradients. */
function refuseReplicated(model: Module): void {
  if (!model.parameters.some(isReplicated)) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'the model of parallelize',
    value: 'one that dataParallel or fullyShard has replicated',
    expected: 'parallelize before dataParallel and fullyShard',
  })
}

function missingFrom(names: readonly string[], plan: ParallelPlan): string[] {
  return Object.keys(plan).filter((glob) => !names.some(matchName(glob)))
}

/** A tied parameter is cut for all layers that use it, or for none. */
function refuseHalfTied(model: Module): void {
  for (const { name, module } of modulesOf(model)) {
    const parameter = module.children === undefined && module.parameters.find(isCut)
    if (!parameter) continue
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'plan',
      value: `no style for ${name}`,
      expected: `the style that cuts ${parameter.name} in another layer: the two are tied`,
    })
  }
}

function refuseUnmatched(model: Module, plan: ParallelPlan): void {
  const names = Array.from(modulesOf(model), ({ name }) => name)
  const [glob] = missingFrom(names, plan)
  if (glob !== undefined) throw planError(glob, names)
}
