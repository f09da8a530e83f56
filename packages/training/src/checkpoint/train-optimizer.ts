import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../backend/host-memory.ts'
import { tf } from '../tfjs/tfjs.ts'
import type { OptimizerState, ParameterState } from '../optim/state.ts'
import { placeWeights, type LayerNames, type LayersModelLike, type PlacedWeight } from './layers.ts'
import { ownerOfState } from './owners.ts'
import type { PieceOwner } from './piece.ts'
import { describeNames } from './safetensors/read.ts'

interface NamedTensor {
  readonly name: string
  readonly tensor: Tensor
}

/** What is needed of an optimizer of `tf.train`, also of one in a `DistributedOptimizer`. */
export interface TrainOptimizerLike {
  readonly iterations: number
  getClassName(): string
  getConfig(): { readonly centered?: unknown }
  getWeights(): Promise<NamedTensor[]>
  setWeights(weights: NamedTensor[]): Promise<void>
}

/** A tf.layers model, with the weights that `fit` trains in the order in which it does. */
export interface TrainedLayersModel extends LayersModelLike {
  readonly trainableWeights: readonly { readonly name: string }[]
}

type Kind = readonly [end: string, kind: string]

/**
 * What the optimizers of tf.train keep of a variable, in the order of their weights: by the end of the
 * name there, the name that it is saved under. Where the formulas are those of `Adam` and `SGD`, so
 * are the names: the one goes on from the state of the other.
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
 * What an optimizer of `tf.train` keeps of the weights that `fit` trains, for `saveCheckpoint` and
 * `loadCheckpoint`: sgd, momentum, adam, rmsprop, adagrad and adadelta, also in a
 * `DistributedOptimizer`, where all of its ranks load.
 *
 * @param names - as for `ownerOfLayers`
 *
 * @throws ERR_TSR_ARGUMENT for another optimizer; when saving: for one that has trained other variables
 *   than those of the model; when loading: for the state of another kind of optimizer
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
      state: () => read(optimizer, trained, kinds),
      loadState: (state) => write(optimizer, trained, kinds, state),
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

async function read(
  optimizer: TrainOptimizerLike,
  trained: readonly PlacedWeight[],
  kinds: readonly Kind[],
): Promise<OptimizerState> {
  const steps = optimizer.iterations
  const [iterations, ...weights] = await optimizer.getWeights()
  iterations?.tensor.dispose()
  const byName = new Map(weights.map(({ name, tensor }) => [name, tensor]))
  const nameOf = ({ variable }: PlacedWeight, [end]: Kind) => `${variable.name}/${end}`
  const wanted = trained.flatMap((each) => kinds.map((kind) => nameOf(each, kind)))
  if (steps > 0 && (byName.size !== wanted.length || wanted.some((name) => !byName.has(name)))) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'optimizer',
      value: `one that keeps ${describeNames([...byName.keys()])}`,
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

async function write(
  optimizer: TrainOptimizerLike,
  trained: readonly PlacedWeight[],
  kinds: readonly Kind[],
  state: OptimizerState,
): Promise<void> {
  const steps = checkState(trained, kinds, state)
  const weights: NamedTensor[] = [{ name: 'iter', tensor: tf.scalar(steps, 'int32') }]
  for (const [end, kind] of steps > 0 ? kinds : []) {
    for (const { variable, part, shape } of trained) {
      const tensor = tensorFrom(state.get(part.name)!.values[kind]!, shape)
      weights.push({ name: `${variable.name}/${end}`, tensor })
    }
  }
  try {
    await optimizer.setWeights(weights)
  } finally {
    for (const { tensor } of weights) tensor.dispose()
  }
}

/** @returns the steps, which tf.train counts for all variables together */
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
