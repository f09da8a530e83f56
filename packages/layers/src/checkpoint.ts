import { argumentError } from '@tsrun/core'
import {
  partOfParameter,
  tensorFrom,
  tf,
  type OptimizerState,
  type Part,
  type PieceOwner,
  type Tensor,
} from '@tsrun/training'
import { describeNames, holdTensor, ownerOfState, type HeldState } from '@tsrun/training/parts'
import { weightsOf, type LayerPlace, type LayersModel, type LayersWeight } from './model.ts'

/** Names a weight of a tf.layers model in checkpoints. */
export type LayerNames = (place: LayerPlace) => string

/**
 * Makes a checkpoint owner of the weights of a tf.layers model, for `saveCheckpoint` and
 * `loadCheckpoint`. Checkpoints are interchangeable with those of any model that has the same
 * parameter names.
 *
 * @param names - the name of each weight in checkpoints. Default: `<layer>.<weight>`, for layers to
 *   which you gave names. `denseNames` gives the names of `shardedMLP`
 * @throws ERR_TSR_ARGUMENT when two weights get the same name
 *
 * @example
 * await saveCheckpoint('checkpoints', { model: ownerOfLayers(model), step })
 */
export function ownerOfLayers(model: LayersModel, names?: LayerNames): PieceOwner {
  const weights = placeWeights(model, names)
  return {
    pieces: () =>
      weights.map(({ variable, part }) => ({ ...part, values: holdTensor(variable.read()) })),
    parts: () => weights.map(({ part }) => part),
    load(pieces) {
      for (const [i, { variable, shape }] of weights.entries()) {
        const value = tensorFrom(pieces[i]!.values as Float32Array, shape)
        variable.write(value)
        value.dispose()
      }
    },
  }
}

/** A weight of a tf.layers model, with its name and its part of the tensor in a checkpoint. */
interface PlacedWeight extends LayersWeight {
  readonly part: Part
}

/**
 * Returns the weights of a model with their checkpoint names.
 *
 * @throws ERR_TSR_ARGUMENT when two weights get the same name
 */
function placeWeights(
  model: LayersModel,
  names: LayerNames = ({ layer, weight }) => `${layer}.${weight}`,
): PlacedWeight[] {
  const taken = new Set<string>()
  return weightsOf(model).map((each) => {
    const { layer, index, weight, shape, variable } = each
    const name = names({ layer, index, weight })
    if (taken.size === taken.add(name).size) {
      throw argumentError('names', `${name} for two weights`, 'a different name for each weight')
    }
    const { shard } = variable
    return { ...each, part: partOfParameter({ name, shape, ...(shard && { shard }) }) }
  })
}

/** Names the weights of dense layers as `shardedMLP` does: `layers.0.weight`, `layers.0.bias`. */
export const denseNames: LayerNames = ({ index, weight }) =>
  `layers.${index}.${weight === 'kernel' ? 'weight' : weight}`

interface NamedTensor {
  readonly name: string
  readonly tensor: Tensor
}

/** An optimizer of `tf.train`, possibly wrapped in a `DistributedOptimizer`. */
export interface TrainOptimizerLike {
  readonly iterations: number
  getClassName(): string
  getConfig(): { readonly centered?: unknown }
  getWeights(): Promise<NamedTensor[]>
  setWeights(weights: NamedTensor[]): Promise<void>
}

type Kind = readonly [suffix: string, kind: string]

/**
 * The state per variable of each tf.train optimizer, in the order of the optimizer's weights. Each
 * entry is the suffix of the weight's name in tf.train, and the name of the state in checkpoints.
 * For `Adam` and `SGD` the checkpoint names are those of this library's optimizers, so that either
 * kind can resume from the other.
 */
const KINDS: Readonly<Record<string, readonly Kind[]>> = {
  SGD: [],
  Momentum: [['momentum', 'velocity']],
  Adam: [
    ['m', 'mean'],
    ['v', 'square'],
  ],
  RMSProp: [
    ['rms', 'rms'],
    ['momentum', 'momentum'],
  ],
  Adagrad: [['accumulator', 'accumulator']],
  Adadelta: [
    ['accum_grad', 'accum_grad'],
    ['accum_var', 'accum_var'],
  ],
}

/**
 * Makes a checkpoint owner of the state of a `tf.train` optimizer, for `saveCheckpoint` and
 * `loadCheckpoint`. The state covers the weights that `fit` trains. Supports sgd, momentum, adam,
 * rmsprop, adagrad and adadelta, also wrapped in a `DistributedOptimizer`. With a
 * `DistributedOptimizer`, all ranks must load.
 *
 * @param names - the name of each weight in checkpoints, as in `ownerOfLayers`
 * @throws ERR_TSR_ARGUMENT for an unsupported optimizer; when saving, if the optimizer has trained
 *   variables of another model; when loading, if the state is that of another kind of optimizer
 * @example
 * const state = { model: ownerOfLayers(model), optimizer: ownerOfTrainOptimizer(optimizer, model) }
 * await saveCheckpoint('checkpoints', { ...state, step: optimizer.iterations }, group)
 */
export function ownerOfTrainOptimizer(
  optimizer: TrainOptimizerLike,
  model: LayersModel,
  names?: LayerNames,
): PieceOwner {
  const placed = new Map(placeWeights(model, names).map((each) => [each.variable.name, each]))
  const trained = model.trainableWeights.map(({ name }) => placed.get(name)!)
  const kinds = kindsOf(optimizer)
  const nameOf = ({ variable }: PlacedWeight, [suffix]: Kind) => `${variable.name}/${suffix}`

  const state = async (): Promise<HeldState> => {
    const steps = optimizer.iterations
    const [iterations, ...weights] = await optimizer.getWeights()
    iterations?.tensor.dispose()
    const byName = new Map(weights.map(({ name, tensor }) => [name, tensor]))
    const wanted = trained.flatMap((each) => kinds.map((kind) => nameOf(each, kind)))
    if (steps > 0 && (byName.size !== wanted.length || wanted.some((name) => !byName.has(name)))) {
      throw argumentError(
        'optimizer',
        `one with the state ${describeNames([...byName.keys()])}`,
        `one that has trained this model: ${describeNames(wanted)}`,
      )
    }
    const found = (steps > 0 ? trained : []).map((each) => {
      const values = kinds.map(
        (kind) => [kind[1], holdTensor(byName.get(nameOf(each, kind))!)] as const,
      )
      return [each.part.name, { steps, values: Object.fromEntries(values) }] as const
    })
    return new Map(found)
  }

  /**
   * Checks that the state fits the optimizer.
   *
   * @returns the number of steps; tf.train has one count for all variables
   */
  const stepsOf = (given: OptimizerState) => {
    const wanted = kinds.map(([, kind]) => kind)
    const describe = (steps: number, all: readonly string[]) =>
      `${steps} steps, ${[...all].sort().join(', ') || 'no vectors'}`
    const first = given.values().next().value?.steps ?? 0
    for (const { part } of given.size === 0 ? [] : trained) {
      const { steps, values } = given.get(part.name) ?? { steps: 0, values: {} }
      const [value, expected] = [describe(steps, Object.keys(values)), describe(first, wanted)]
      if (value === expected) continue
      throw argumentError(`the state of ${part.name}`, value, expected)
    }
    return first
  }

  const loadState = async (given: OptimizerState) => {
    const steps = stepsOf(given)
    const weights: NamedTensor[] = [{ name: 'iter', tensor: tf.scalar(steps, 'int32') }]
    for (const kind of steps > 0 ? kinds : []) {
      for (const each of trained) {
        const values = given.get(each.part.name)!.values[kind[1]]!
        weights.push({ name: nameOf(each, kind), tensor: tensorFrom(values, each.shape) })
      }
    }
    try {
      await optimizer.setWeights(weights)
    } finally {
      for (const { tensor } of weights) tensor.dispose()
    }
  }

  return ownerOfState(
    { state, loadState },
    trained.map(({ part }) => part),
  )
}

function kindsOf(optimizer: TrainOptimizerLike): readonly Kind[] {
  const name = optimizer.getClassName()
  const kinds = Object.hasOwn(KINDS, name) ? KINDS[name] : undefined
  if (kinds === undefined) {
    throw argumentError('optimizer', name, `one of ${Object.keys(KINDS).join(', ')}`)
  }
  return optimizer.getConfig().centered === true ? [...kinds, ['mg', 'mg']] : kinds
}
