import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../backend/host-memory.ts'
import type { Shard } from '../model/parameter.ts'
import type { OptimizerState, ParameterState } from '../optim/state.ts'
import { tf } from '../tfjs/tfjs.ts'
import { ownerOfState } from './owners.ts'
import { partOfParameter, partSize, type Part, type Piece, type PieceOwner } from './piece.ts'
import { describeNames } from './safetensors/read.ts'

/** A weight of a tf.layers model. */
interface LayerWeight {
  /** Unique in the process. */
  readonly name: string
  readonly originalName: string
  readonly shape: readonly (number | null)[]
  /** Present if the layer is sharded over ranks; see `parallelizeLayers`. */
  readonly shard?: Shard
  read(): Tensor
  write(value: Tensor): unknown
}

/** The properties of a tf.LayersModel that are used here. */
export interface LayersModelLike {
  readonly layers: readonly { readonly name: string; readonly weights: readonly LayerWeight[] }[]
}

/** The place of a weight in a tf.layers model. */
export interface LayerPlace {
  /** The name of the layer. If you give none, TensorFlow.js creates a different one for each model. */
  readonly layer: string
  /** The index of the layer among those that have weights. */
  readonly index: number
  /**
   * `kernel`, `bias`, `gamma`, ... If a layer has several weights of a name, as bidirectional layers and
   * nested models do, the second one is `kernel_1`, and so on.
   */
  readonly weight: string
}

export type LayerNames = (place: LayerPlace) => string

/**
 * An owner of the weights of a tf.layers model, for `saveCheckpoint` and `loadCheckpoint`. Such a model
 * and other models with the same parameter names can load each other's checkpoints.
 *
 * @param names - default: `<layer>.<weight>`, for layers that you have named; `denseNames` are the names
 *   of `shardedMLP`
 *
 * @throws ERR_TSR_ARGUMENT when two weights get the same name
 *
 * @example
 * await saveCheckpoint('checkpoints', { model: ownerOfLayers(model), step })
 */
export function ownerOfLayers(model: LayersModelLike, names?: LayerNames): PieceOwner {
  const weights = placeWeights(model, names)
  return {
    pieces: async () =>
      await Promise.all(
        weights.map(async ({ variable, part }): Promise<Piece> => {
          const values = new Float32Array(partSize(part))
          await writeTo(variable.read(), values)
          return { ...part, values }
        }),
      ),
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

/** A weight of a tf.layers model, and the part of a tensor that it is. */
interface PlacedWeight {
  readonly variable: LayerWeight
  readonly shape: readonly number[]
  readonly part: Part
}

/** @throws ERR_TSR_ARGUMENT when two weights get the same name */
function placeWeights(
  { layers }: LayersModelLike,
  names: LayerNames = ({ layer, weight }) => `${layer}.${weight}`,
): PlacedWeight[] {
  const weights = layers
    .filter((layer) => layer.weights.length > 0)
    .flatMap(({ name: layer, weights: own }, index) => {
      const counts = new Map<string, number>()
      return own.map((variable) => {
        const weight = numbered(variable.originalName.split('/').at(-1)!, counts)
        const shape = variable.shape as readonly number[]
        const { shard } = variable
        const sharding = shard === undefined ? {} : { shard }
        return {
          variable,
          shape,
          part: partOfParameter({ name: names({ layer, index, weight }), shape, ...sharding }),
        }
      })
    })
  checkNames(weights.map(({ part }) => part.name))
  return weights
}

/** `kernel`, and where there was one in `counts` already `kernel_1`, and so on. */
export function numbered(name: string, counts: Map<string, number>): string {
  const count = counts.get(name) ?? 0
  counts.set(name, count + 1)
  return count === 0 ? name : `${name}_${String(count)}`
}

function checkNames(names: readonly string[]): void {
  const repeated = names.find((name, i) => names.indexOf(name) !== i)
  if (repeated === undefined) return
  const expected = 'a different name for each weight'
  const value = `${repeated} for two weights`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'names', value, expected })
}

/** The names of `shardedMLP` for the weights of dense layers: `layers.0.weight`, `layers.0.bias`. */
export const denseNames: LayerNames = ({ index, weight }) =>
  `layers.${String(index)}.${weight === 'kernel' ? 'weight' : weight}`

interface NamedTensor {
  readonly name: string
  readonly tensor: Tensor
}

/** An optimizer of `tf.train`, which may be wrapped in a `DistributedOptimizer`. */
export interface TrainOptimizerLike {
  readonly iterations: number
  getClassName(): string
  getConfig(): { readonly centered?: unknown }
  getWeights(): Promise<NamedTensor[]>
  setWeights(weights: NamedTensor[]): Promise<void>
}

/** A tf.layers model with the weights that `fit` trains, in the order in which it trains them. */
export interface TrainedLayersModel extends LayersModelLike {
  readonly trainableWeights: readonly { readonly name: string }[]
}

type Kind = readonly [suffix: string, kind: string]

/**
 * The state that the optimizers of tf.train have for each variable, in the order of their weights: the
 * suffix of its name there, and the name that it is saved under. Optimizers with the formulas of `Adam`
 * and `SGD` use the same names, so that either can continue from the state of the other.
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
 * An owner of the state that an optimizer of `tf.train` has for the weights that `fit` trains, for
 * `saveCheckpoint` and `loadCheckpoint`. Supported are sgd, momentum, adam, rmsprop, adagrad and
 * adadelta, also wrapped in a `DistributedOptimizer`, all of whose ranks have to load.
 *
 * @param names - as for `ownerOfLayers`
 *
 * @throws ERR_TSR_ARGUMENT for another optimizer; when saving, for one that has trained variables of
 *   another model; when loading, for the state of another kind of optimizer
 *
 * @example
 * const state = { model: ownerOfLayers(model), optimizer: ownerOfTrainOptimizer(optimizer, model) }
 * await saveCheckpoint('checkpoints', { ...state, step: optimizer.iterations }, group)
 */
export function ownerOfTrainOptimizer(
  optimizer: TrainOptimizerLike,
  model: TrainedLayersModel,
  names?: LayerNames,
): PieceOwner {
  const placed = new Map(placeWeights(model, names).map((each) => [each.variable.name, each]))
  const trained = model.trainableWeights.map(({ name }) => placed.get(name)!)
  const kinds = kindsOf(optimizer)
  return ownerOfState(
    {
      state: () => readState(optimizer, trained, kinds),
      loadState: (state) => writeState(optimizer, trained, kinds, state),
    },
    trained.map(({ part }) => part),
  )
}

function kindsOf(optimizer: TrainOptimizerLike): readonly Kind[] {
  const name = optimizer.getClassName()
  const kinds = Object.hasOwn(KINDS, name) ? KINDS[name] : undefined
  if (kinds === undefined) {
    const expected = `one of ${Object.keys(KINDS).join(', ')}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'optimizer', value: name, expected })
  }
  return optimizer.getConfig().centered === true ? [...kinds, ['mg', 'mg']] : kinds
}

async function readState(
  optimizer: TrainOptimizerLike,
  trained: readonly PlacedWeight[],
  kinds: readonly Kind[],
): Promise<OptimizerState> {
  const steps = optimizer.iterations
  const [iterations, ...weights] = await optimizer.getWeights()
  iterations?.tensor.dispose()
  const byName = new Map(weights.map(({ name, tensor }) => [name, tensor]))
  const nameOf = ({ variable }: PlacedWeight, [suffix]: Kind) => `${variable.name}/${suffix}`
  const wanted = trained.flatMap((each) => kinds.map((kind) => nameOf(each, kind)))
  if (steps > 0 && (byName.size !== wanted.length || wanted.some((name) => !byName.has(name)))) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'optimizer',
      value: `one with the state ${describeNames([...byName.keys()])}`,
      expected: `one that has trained this model: ${describeNames(wanted)}`,
    })
  }
  const state = new Map<string, ParameterState>()
  for (const each of steps > 0 ? trained : []) {
    const values: Record<string, Float32Array> = {}
    for (const kind of kinds) {
      const tensor = byName.get(nameOf(each, kind))!
      const array = new Float32Array(tensor.size)
      await writeTo(tensor, array)
      values[kind[1]] = array
    }
    state.set(each.part.name, { steps, values })
  }
  return state
}

async function writeState(
  optimizer: TrainOptimizerLike,
  trained: readonly PlacedWeight[],
  kinds: readonly Kind[],
  state: OptimizerState,
): Promise<void> {
  const steps = checkState(trained, kinds, state)
  const weights: NamedTensor[] = [{ name: 'iter', tensor: tf.scalar(steps, 'int32') }]
  for (const [suffix, kind] of steps > 0 ? kinds : []) {
    for (const { variable, part, shape } of trained) {
      const tensor = tensorFrom(state.get(part.name)!.values[kind]!, shape)
      weights.push({ name: `${variable.name}/${suffix}`, tensor })
    }
  }
  try {
    await optimizer.setWeights(weights)
  } finally {
    for (const { tensor } of weights) tensor.dispose()
  }
}

/** @returns the number of steps, which tf.train counts for all variables together */
function checkState(
  trained: readonly PlacedWeight[],
  kinds: readonly Kind[],
  state: OptimizerState,
): number {
  const wanted = kinds.map(([, kind]) => kind)
  const describe = (steps: number, names: readonly string[]) =>
    `${String(steps)} steps, ${[...names].sort().join(', ') || 'no vectors'}`
  const first = state.values().next().value?.steps ?? 0
  for (const { part } of state.size === 0 ? [] : trained) {
    const { steps, values } = state.get(part.name) ?? { steps: 0, values: {} }
    const [value, expected] = [describe(steps, Object.keys(values)), describe(first, wanted)]
    if (value === expected) continue
    throw tsrError('ERR_TSR_ARGUMENT', { name: `the state of ${part.name}`, value, expected })
  }
  return first
}
