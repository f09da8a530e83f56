import { argumentError, importOptional } from '@tsrun/core'
import { describe } from '../model/describe.ts'
import type { Module } from '../model/module.ts'
import type { PipelineModel } from '../parallel/recipe.ts'

/** The models that `trainer` accepts: a module, a recipe for parts of a model, or a tf.layers model. */
export type TrainableModel = Module | PipelineModel | LayersModel

/** A `tf.LayersModel`, which `@tsrun/layers` adapts. */
export interface LayersModel {
  readonly layers: readonly object[]
  getClassName(): string
}

/**
 * The exports of `@tsrun/layers` that the trainer uses. `@tsrun/layers` depends on this package, so it is
 * imported by name at run time.
 */
interface LayersPackage {
  adaptLayers(model: LayersModel): {
    readonly endsInSoftmax: boolean
    build(): Module
  }
}

/** A model that a trainer can build: whole, or in pipeline stages. */
export interface AdaptedModel {
  /** The recipe for pipeline stages; undefined if the model cannot be divided into stages. */
  readonly recipe: PipelineModel | undefined
  /** Whether the model ends in a softmax. Cross-entropy would then apply a second softmax. */
  readonly endsInSoftmax?: boolean
  /** Builds the whole model. The trainer calls `restore` before it disposes the parameters. */
  build(): Module & { restore?(): void }
}

/**
 * @throws ERR_TSR_ARGUMENT for a value that is not a trainable model; ERR_TSR_PACKAGE_MISSING if a
 * tf.layers model needs `@tsrun/layers`
 */
export async function adaptModel(model: TrainableModel): Promise<AdaptedModel> {
  if (isRecipe(model)) {
    return {
      recipe: model,
      build: () => model.slice(0, model.layers),
    }
  }
  if (isLayersModel(model)) {
    const name = '@tsrun/layers'
    const what = 'Training a model of tf.layers'
    const load = async () => (await import(name)) as LayersPackage
    const layers = (await importOptional(what, name, load)).adaptLayers(model)
    const build = () => withParameters(layers.build())
    return { recipe: undefined, endsInSoftmax: layers.endsInSoftmax, build }
  }
  const { parameters, forward } = (model as Partial<Module> | null) ?? {}
  if (Array.isArray(parameters) && typeof forward === 'function') {
    return { recipe: undefined, build: () => withParameters(model) }
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
