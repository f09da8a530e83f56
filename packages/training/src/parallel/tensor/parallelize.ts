import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Module } from '../../model/module.ts'
import { modulesOf } from '../../model/module.ts'
import { matchName } from '../../model/name-patterns.ts'
import { isDropout } from '../../nn/dropout.ts'
import { inOrder } from '../../nn/embedding.ts'
import { unknownLayer, type PipelineModel } from '../recipe.ts'
import { checkGroup } from '../requirements.ts'
import { connectPartialGathers } from './partial-gathers.ts'
import { isSequenceParallel, partOf } from './sequence.ts'
import { isSharded } from './sharding.ts'
import { checkPlan, type ParallelPlan } from './styles.ts'

/**
 * Shares the layers of a model among the ranks of a group (Megatron-LM's tensor parallelism; like torch's
 * parallelize_module), in place: modules that the plan names are replaced by modules that compute a part.
 * Parameters keep their names. Each rank holds its part of each sharded parameter (see
 * `Parameter.shard`), and all other parameters whole.
 *
 * For a recipe of a pipeline it returns a recipe whose slices are shared. As a slice has only some
 * layers, names that match no layer are refused in the first pass of the pipeline. In a group of one rank
 * the model stays as it is.
 *
 * Passes block inside collectives, or await them with `recordSegments`. All ranks run the same layers in
 * the same order.
 *
 * @example
 * const model = parallelize(new GPT(), gptPlan(), mesh.tp)
 * const pipe = pipeline(parallelize(gpt(), gptPlan(), mesh.tp), mesh.pp)
 *
 * @throws ERR_TSR_ARGUMENT without a plan of styles or a group; when a name matches no layer, a layer
 *   cannot be divided, a `partial` gather is not followed by a columnParallel() layer, a tied parameter
 *   would be sharded for only one of its layers, or the model is already replicated
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
  const replaced = new Map<Module, string>()
  for (const { name, module, replace } of modulesOf(model)) {
    const entry = entries.find(({ fits }) => fits(name))
    const next = entry?.style(module, group, name) ?? module
    if (next === module) continue
    replace(next)
    replaced.set(module, name)
  }
  refuseStale(model, '', replaced)
  refuseHalfSharded(model)
  connectPartialGathers(model)
  divideDropouts(model, group)
  return model
}

/** If ranks have parts of sequences between shared layers, a dropout covers only its rank's positions. */
function divideDropouts(model: Module, group: ProcessGroup): void {
  const modules = Array.from(modulesOf(model), ({ module }) => module)
  if (!modules.some(isSequenceParallel)) return
  // A dropout may occur several times in the model.
  for (const dropout of new Set(modules.filter(isDropout))) {
    dropout.positions = partOf(dropout.positions ?? inOrder, group)
  }
}

/** Refuses a replicated model: the gradients of new parameters would not be averaged. */
function refuseReplicated(model: Module): void {
  if (!model.parameters.some(({ isReplicated }) => isReplicated === true)) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'the model of parallelize',
    value: 'one that dataParallel or fullyShard has replicated',
    expected: 'parallelize before dataParallel and fullyShard',
  })
}

function missingFrom(names: readonly string[], plan: ParallelPlan): string[] {
  return Object.keys(plan).filter((glob) => !names.some(matchName(glob)))
}

/**
 * Refuses a module that also keeps its children in a list: it would train the replaced layers, or leave
 * out the gradients of their replacements.
 */
function refuseStale(module: Module, name: string, replaced: ReadonlyMap<Module, string>): void {
  const { children, layers, parameters } = module
  if (children === undefined) return
  const of = name === '' ? 'the model' : name
  const kept = layers?.find((layer) => replaced.has(layer))
  if (kept !== undefined) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `the layers of ${of}`,
      value: `a list with ${replaced.get(kept)!}, which parallelize has replaced`,
      expected:
        'a getter that reads children: get layers() { return Object.values(this.children) }',
    })
  }
  const own = new Set(parameters)
  const missing = Object.values(children)
    .flatMap((child) => child.parameters)
    .find((p) => !own.has(p))
  if (missing !== undefined && replaced.size > 0) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `the parameters of ${of}`,
      value: `a list without the ${missing.name} of its children, which parallelize has replaced`,
      expected:
        'a getter that reads children: get parameters() { return parametersOf(this.children) }',
    })
  }
  for (const [key, child] of Object.entries(children)) {
    refuseStale(child, name === '' ? key : `${name}.${key}`, replaced)
  }
}

/** Refuses a tied parameter that is sharded for only some of the layers that use it. */
function refuseHalfSharded(model: Module): void {
  for (const { name, module } of modulesOf(model)) {
    const parameter = module.children === undefined && module.parameters.find(isSharded)
    if (!parameter) continue
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'plan',
      value: `no style for ${name}`,
      expected: `the style that shards ${parameter.name} in another layer: the two are tied`,
    })
  }
}

function refuseUnmatched(model: Module, plan: ParallelPlan): void {
  const names = Array.from(modulesOf(model), ({ name }) => name)
  const [glob] = missingFrom(names, plan)
  if (glob !== undefined) throw unknownLayer(glob, names)
}
