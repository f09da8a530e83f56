import { argumentError, having, refuseUnknown } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { describe } from '../model/describe.ts'
import { buffersOf, type Buffered } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import {
  ownerOfOptimizer,
  ownerOfParameters,
  withBuffers,
  type StatefulOptimizer,
} from './owners.ts'
import type { PieceOwner } from './piece.ts'

/** This rank's part of the state to save or load. */
export interface CheckpointState {
  /** A model, a pipeline, or an owner of shards of parameters. */
  readonly model: ({ readonly parameters: readonly Parameter[] } & Buffered) | PieceOwner
  /** An optimizer, or an owner of optimizer state. If absent, optimizer state is ignored. */
  readonly optimizer?: StatefulOptimizer | PieceOwner
}

const owner = having<PieceOwner>(['pieces', 'parts', 'load'], 'an owner of tensors')
const stateful = having<StatefulOptimizer>(
  ['state', 'loadState'],
  'an object with state() and loadState(), or ownerOfTrainOptimizer() of @tsrun/layers',
)

/** The keys of `SavedState`. A saved state object can also be passed to `loadCheckpoint`. */
const KNOWN = ['model', 'optimizer', 'step', 'data', 'seeds']

/**
 * Returns the owners of the tensors of a state: the model's, then the optimizer's.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function ownersOf(state: CheckpointState): PieceOwner[] {
  refuseUnknown(state, KNOWN, 'state')
  const { model, optimizer } = state
  const isOwner = owner.is(model)
  if (!isOwner) checkModule(model)
  const owners = [
    isOwner ? model : withBuffers(ownerOfParameters(model.parameters), buffersOf(model)),
  ]
  if (optimizer === undefined) return owners
  if (owner.is(optimizer)) return [...owners, optimizer]
  if (!stateful.is(optimizer)) {
    throw argumentError('optimizer', describe(optimizer), stateful.expected)
  }
  if ('parameters' in model) return [...owners, ownerOfOptimizer(optimizer, model.parameters)]
  throw argumentError(
    'optimizer',
    'an optimizer, and the model an owner',
    'an owner of the state of the optimizer, as model is one of parameters',
  )
}

/**
 * Checks the arguments before and after the state, which untyped callers may swap.
 *
 * @throws ERR_TSR_ARGUMENT unless `directory` is a path, and `group` is a group or undefined
 */
export function checkPlace(directory: unknown, group: unknown): void {
  if (typeof directory !== 'string') {
    throw argumentError('directory', describe(directory), 'the path of a folder')
  }
  const given = group as Partial<ProcessGroup> | null | undefined
  if (given === undefined || typeof given?.allGatherObject === 'function') return
  throw argumentError(
    'group',
    describe(group),
    'a process group, or undefined for this process alone; options come after it',
  )
}

/** @throws ERR_TSR_ARGUMENT unless `model` has parameters */
export function checkModule(model: unknown): void {
  const { parameters, build, layers } = (model ?? {}) as Record<string, unknown>
  if (Array.isArray(parameters)) return
  const invalid = (value: string, expected: string) => argumentError('model', value, expected)
  // Check for `layers` first, because a tf.layers model also has a method `build`.
  if (Array.isArray(layers))
    throw invalid('a model of tf.layers', 'ownerOfLayers(model) of @tsrun/layers')
  if (typeof build === 'function') throw invalid('a recipe', 'the result of its build()')
  throw invalid(describe(model), 'a module, a pipeline, or another object with parameters')
}
