import { argumentError, importOptional } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { currentBackend } from '../backend/current.ts'
import { loadBackend } from '../backend/load.ts'
import { describe } from '../model/describe.ts'
import type { Module } from '../model/module.ts'
import { matchNames, type NamePatterns } from '../model/name-patterns.ts'
import { crossEntropy, summedCrossEntropy } from '../nn/cross-entropy.ts'
import { contextParallel } from '../parallel/context/context-parallel.ts'
import { dataParallel, type DataParallel } from '../parallel/data/data-parallel.ts'
import { checkFrozen } from '../parallel/gradients/options.ts'
import { pipeline, wholeModel } from '../parallel/pipeline/create.ts'
import type { ModelOptions, PipelineOptions } from '../parallel/pipeline/options.ts'
import type { Pipeline } from '../parallel/pipeline/pipeline.ts'
import type { PipelineModel } from '../parallel/recipe.ts'
import { vocabParallelCrossEntropy } from '../parallel/tensor/cross-entropy.ts'
import { parallelize } from '../parallel/tensor/parallelize.ts'
import { fullyShard, type FullyShard } from '../parallel/zero/fully-shard.ts'
import { tf } from '../tfjs/tfjs.ts'
import { compareOptions } from './agreement.ts'
import { layoutOf, type Layout } from './layout.ts'
import { readTrainerOptions, type CheckedOptions, type TrainerOptions } from './options.ts'

/** A model that is distributed over ranks, with its options. */
export type Assembly = Awaited<ReturnType<typeof assemble>>

/** Implements `trainer()`, whose comment lists the errors. */
export async function assemble(model: TrainableModel, options: TrainerOptions) {
  const checked = readTrainerOptions(options)
  const adapted = await adaptModel(model)
  refuseSecondSoftmax(adapted, checked)
  if (!tf.engine().backendName) await loadBackend()
  const layout = await layoutOf(checked.mesh)
  await compareOptions(checked, layout)
  const { pp, tp } = layout
  const { clip, optimizer, recompute, unused, accumulate, microbatches } = checked
  const isDivided = checked.plan?.['lm_head'] !== undefined
  const loss =
    checked.loss ?? (isDivided ? vocabParallelCrossEntropy(tp, 'sum') : summedCrossEntropy)
  const common = {
    optimizer,
    recompute,
    unused,
    loss,
    recorder: layout.world.spans,
    clip: clip && { ...clip, ...(tp.size > 1 && { tensor: tp }) },
  } as ModelOptions
  let core: Pipeline
  if (pp.size > 1) {
    const { schedule, chunks, split } = checked
    if (accumulate !== 1) {
      throw argumentError(
        'accumulate',
        `${accumulate}, with several stages`,
        'microbatches in its place: a pipeline sums the gradients of its micro-batches',
      )
    }
    if (adapted.recipe === undefined) {
      throw argumentError(
        'model',
        'one that is built',
        `a recipe that builds parts of it for ${pp.size} stages, such as shardedMLP(...)`,
      )
    }
    const cut = divide(adapted.recipe, checked, layout)
    const options = { ...common, schedule, chunks, split, microbatches } as PipelineOptions
    core = pipeline(cut, pp, options)
  } else {
    const parts = accumulate === 1 ? (microbatches ?? 1) : accumulate
    const module = divide(adapted.build(), checked, layout)
    core = wholeModel(module, { ...common, accumulate: parts, tensor: tp })
  }
  try {
    const frozen = checked.frozen && (await frozenIn(core, checked.frozen, pp))
    // `replica` averages gradients, if there are several replicas or the state is sharded.
    const replica = await replicate(core, { ...checked, frozen }, layout)
    return { core, replica, layout, options: checked }
  } catch (error) {
    disposeModelOf({ core, replica: undefined })
    throw error
  }
}

/** Frees the model. A tf.layers model first gets its weights back, which `zero: 3` must gather. */
export function disposeModelOf({ core, replica }: Pick<Assembly, 'core' | 'replica'>): void {
  const module: ReturnType<AdaptedModel['build']> = core.module
  module.restore?.()
  replica?.dispose()
  core.dispose()
}

function refuseSecondSoftmax({ endsInSoftmax }: AdaptedModel, { loss }: CheckedOptions): void {
  if (endsInSoftmax !== true || (loss !== undefined && loss !== crossEntropy)) return
  throw argumentError(
    'model',
    'one that ends in softmax',
    'one that ends in scores, as cross-entropy has its own softmax',
  )
}

/** Applies context parallelism (`cp`) and tensor parallelism (`tp`). */
function divide<M extends Module | PipelineModel>(
  model: M,
  { plan }: CheckedOptions,
  { cp, tp }: Layout,
): M {
  // `contextParallel` and `parallelize` return the type of their argument: a module or a recipe.
  const divided = cp.size > 1 ? (contextParallel(model as Module, cp) as M) : model
  if (tp.size === 1) return divided
  if (plan === undefined) {
    throw argumentError(
      'plan',
      'undefined',
      `styles of the layers that ${tp.size} ranks share, for example gptPlan()`,
    )
  }
  return parallelize(divided as Module, plan, tp) as M
}

/**
 * Returns a predicate for frozen parameters. Throws on all ranks if `frozen` selects no parameter of any
 * stage, or all of them.
 */
async function frozenIn(
  { parameters }: Pick<Pipeline, 'parameters'>,
  frozen: NamePatterns,
  stages: ProcessGroup,
): Promise<(name: string) => boolean> {
  const own = parameters.map(({ name }) => name)
  const all = stages.size === 1 ? [own] : await stages.allGatherObject(own, { label: 'parameters' })
  const names = [...new Set(all.flat())]
  checkFrozen(frozen, names)
  const isFrozen = matchNames(frozen)
  if (!names.every(isFrozen)) return isFrozen
  throw argumentError(
    'frozen',
    'all parameters',
    'patterns that leave at least one parameter to be trained',
  )
}

async function replicate(
  core: Pipeline,
  { zero, frozen, recompute, wire, deterministic, bucketBytes, firstBucketBytes }: CheckedOptions,
  { averaged, shard }: Layout,
): Promise<DataParallel | FullyShard | undefined> {
  if (deterministic) currentBackend().makeExact?.()
  const stage = zero === 0 && shard.size > 1 ? 3 : zero
  const options = {
    wire,
    deterministic,
    bucketBytes,
    firstBucketBytes,
    ...(frozen && { frozen }),
    // Average over tokens, which is correct for any number of examples on each rank, including none.
    // `Trainer.step` reports parameters that are unused on all ranks.
    ...({ reduction: 'token', unused: 'zeros' } as const),
  }
  if (stage !== 0) {
    const groups = shard.size === 1 ? averaged : { shard, replicate: averaged }
    // The stages of a pipeline recompute their layers themselves.
    const units = core.whole !== undefined && recompute !== false && { recompute }
    return await fullyShard(core, groups, { ...options, ...units, stage })
  }
  if (averaged.size === 1 && frozen === undefined) return undefined
  return await dataParallel(core, averaged, options)
}

/** The models that `trainer` accepts: a module, a recipe for parts of a model, or a tf.layers model. */
export type TrainableModel = Module | PipelineModel | LayersModel

/** A `tf.LayersModel`, which `@tsrun/layers` adapts. */
export interface LayersModel {
  readonly layers: readonly object[]
  getClassName(): string
}

/** Exports of `@tsrun/layers`, which depends on this package: the trainer imports it at run time. */
interface LayersPackage {
  adaptLayers(model: LayersModel): {
    readonly endsInSoftmax: boolean
    build(): Module
  }
}

/** A model that a trainer can build: whole, or in pipeline stages. */
interface AdaptedModel {
  /** The recipe for pipeline stages; undefined if the model cannot be divided into stages. */
  readonly recipe?: PipelineModel
  /** Whether the model ends in a softmax. Cross-entropy would then apply a second softmax. */
  readonly endsInSoftmax?: boolean
  /** Builds the whole model. The trainer calls `restore` before it disposes the parameters. */
  build(): Module & { restore?(): void }
}

async function adaptModel(model: TrainableModel): Promise<AdaptedModel> {
  if (isRecipe(model)) {
    return { recipe: model, build: () => model.slice(0, model.layers) }
  }
  if (isLayersModel(model)) {
    const name = '@tsrun/layers'
    const what = 'Training a model of tf.layers'
    const load = async () => (await import(name)) as LayersPackage
    const layers = (await importOptional(what, name, load)).adaptLayers(model)
    const build = () => withParameters(layers.build())
    return { endsInSoftmax: layers.endsInSoftmax, build }
  }
  const { parameters, forward } = (model as Partial<Module> | null) ?? {}
  if (Array.isArray(parameters) && typeof forward === 'function') {
    return { build: () => withParameters(model) }
  }
  throw argumentError(
    'model',
    describe(model),
    'a module ({ parameters, forward }), a recipe such as shardedMLP(...), or a model of tf.layers',
  )
}

function withParameters<M extends Module>(model: M): M {
  if (model.parameters.length > 0) return model
  throw argumentError(
    'model',
    'one without parameters',
    'one with a parameter; weights are made by createParameter(...), not by tf.variable(...)',
  )
}

function isRecipe(model: TrainableModel): model is PipelineModel {
  return typeof (model as Partial<PipelineModel> | null)?.slice === 'function'
}

function isLayersModel(model: TrainableModel): model is LayersModel {
  return typeof (model as Partial<LayersModel> | null)?.getClassName === 'function'
}
