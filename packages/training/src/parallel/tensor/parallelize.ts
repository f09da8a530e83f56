import { argumentError, choice, declareOptions, flag, type Rules } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { describe } from '../../model/describe.ts'
import { modulesOf, ofKind, type Module, type Separable } from '../../model/module.ts'
import { matchName, unmatched } from '../../model/name-patterns.ts'
import { isDropout } from '../../nn/dropout.ts'
import { inOrder, type Embedding, type Head } from '../../nn/embedding.ts'
import { isLinear, type JointLinear, type Linear } from '../../nn/linear.ts'
import { checkSearch, type PipelineModel } from '../recipe.ts'
import { checkGroup } from '../requirements.ts'
import {
  columnParallelLinear,
  isColumnParallel,
  isSequenceParallel,
  partOf,
  rowParallelLinear,
  sequenceParallelLayer,
  vocabParallelEmbedding,
  vocabParallelHead,
  type ColumnParallelOptions,
  type LayerContext,
  type RowParallelOptions,
  type VocabParallelOptions,
} from './layers.ts'
import { isSharded } from './sharding.ts'

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
  output: choice('replicated', 'sequence').default('replicated'),
} satisfies Rules<RowParallelOptions>)
const readVocabOptions = declareOptions({
  sequence: flag.default(false),
} satisfies Rules<VocabParallelOptions>)

/**
 * Makes a parallel style from a function that shards the layers for which `fits` is true.
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
function checkPlan(plan: ParallelPlan | null | undefined) {
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

/**
 * Enables tensor parallelism in a model, in place (Megatron-LM; like torch's parallelize_module).
 * Each layer that the plan names is replaced by a layer that computes this rank's part. Parameters
 * keep their names. Each rank holds its part of each sharded parameter (see `Parameter.shard`), and
 * all other parameters whole.
 *
 * Given a pipeline recipe, returns a recipe whose slices are sharded. A slice has only some of the
 * layers, so a name that matches no layer is refused later, in the first pass of the pipeline. In a
 * group of one rank the model is unchanged.
 *
 * Passes block while they wait for other ranks; with `recordSegments` they await instead. All ranks
 * must run the same layers in the same order.
 *
 * @example
 * const model = parallelize(new GPT(), gptPlan(), mesh.tp)
 * const pipe = pipeline(parallelize(gpt(), gptPlan(), mesh.tp), mesh.pp)
 *
 * @throws ERR_TSR_ARGUMENT without a valid plan or a group; when a name matches no layer; when a
 *   layer cannot be divided; when a `partial` gather is not followed by a columnParallel() layer;
 *   when a tied parameter would be sharded for only one of its layers; or when the model is already
 *   replicated
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
  const globs = Object.keys(plan)
  if (!('slice' in target)) {
    const names = Array.from(modulesOf(target), ({ name }) => name)
    checkSearch('plan', [{ names, missing: unmatched(globs, names) }])
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
      return { missing: [...unmatched(globs, names), ...(before?.missing ?? [])], names }
    },
  }
}

function share<M extends Module>(model: M, plan: ParallelPlan, group: ProcessGroup) {
  const entries = Object.entries(plan).map(([glob, style]) => ({ fits: matchName(glob), style }))
  // If the model is already replicated, the gradients of the new parameters would not be averaged.
  if (model.parameters.some(({ isReplicated }) => isReplicated === true)) {
    throw argumentError(
      'the model of parallelize',
      'one that dataParallel or fullyShard has replicated',
      'parallelize before dataParallel and fullyShard',
    )
  }
  const replaced = new Map<Module, string>()
  for (const { name, module, replace } of modulesOf(model)) {
    const entry = entries.find(({ fits }) => fits(name))
    const next = entry?.style(module, group, name) ?? module
    if (next === module) continue
    replace(next)
    replaced.set(module, name)
  }
  refuseStale(model, replaced)
  refuseHalfSharded(model)
  connectPartialGathers(model)
  divideDropouts(model, group)
  return model
}

/** Tells each dropout which positions of a sequence this rank has, with sequence parallelism. */
function divideDropouts(model: Module, group: ProcessGroup) {
  const modules = Array.from(modulesOf(model), ({ module }) => module)
  if (!modules.some(isSequenceParallel)) return
  // Use a set, because the same dropout may occur several times in the model.
  for (const dropout of new Set(modules.filter(isDropout))) {
    dropout.positions = partOf(dropout.positions ?? inOrder, group)
  }
}

/** Refuses modules whose stored lists of layers or parameters still contain replaced ones. */
function refuseStale(model: Module, replaced: ReadonlyMap<Module, string>) {
  for (const { name, module } of [{ name: '', module: model }, ...modulesOf(model)]) {
    const { children, layers, parameters } = module
    if (children === undefined) continue
    const of = name === '' ? 'the model' : name
    const kept = layers?.find((layer) => replaced.has(layer))
    if (kept !== undefined) {
      throw argumentError(
        `the layers of ${of}`,
        `a list with ${replaced.get(kept)!}, which parallelize has replaced`,
        'a getter that reads children: get layers() { return Object.values(this.children) }',
      )
    }
    const own = new Set(parameters)
    const missing = Object.values(children)
      .flatMap((child) => child.parameters)
      .find((p) => !own.has(p))
    if (missing !== undefined && replaced.size > 0) {
      throw argumentError(
        `the parameters of ${of}`,
        `a list without the ${missing.name} of its children, which parallelize has replaced`,
        'a getter that reads children: get parameters() { return parametersOf(this.children) }',
      )
    }
  }
}

/** Refuses a tied parameter that is sharded in one of its layers but not in another. */
function refuseHalfSharded(model: Module) {
  for (const { name, module } of modulesOf(model)) {
    const parameter = module.children === undefined && module.parameters.find(isSharded)
    if (!parameter) continue
    throw argumentError(
      'plan',
      `no style for ${name}`,
      `the style that shards ${parameter.name} in another layer: the two are tied`,
    )
  }
}

/**
 * Marks each layer that follows a `partial` gather. The gather sums the gradient of the layer's input. If
 * the layer also summed this gradient, the result would be multiplied by the number of ranks.
 *
 * @throws ERR_TSR_ARGUMENT when the layer is not column parallel: its input gradient is then not partial
 */
function connectPartialGathers(model: Module) {
  const named = Array.from(modulesOf(model))
  const nameOf = (layer: Module) =>
    named.find(({ module }) => module === layer)?.name ?? 'another layer'
  for (const { children = {}, layers } of [model, ...named.map(({ module }) => module)]) {
    for (const [i, layer] of (layers ?? Object.values(children)).entries()) {
      if (!isColumnParallel(layer) || layer.gather !== 'partial') continue
      // If the module does not list its `layers`, their order is unknown.
      const next = layers?.[i + 1]
      if (next !== undefined && isColumnParallel(next) && next.input === 'replicated') {
        next.followPartial()
        continue
      }
      const following = next === undefined ? 'an unknown layer' : nameOf(next)
      throw argumentError(
        'plan',
        `gather: 'partial' for ${nameOf(layer)}, followed by ${following}`,
        "a columnParallel() layer directly after it, or gather: 'replicated'",
      )
    }
  }
}
