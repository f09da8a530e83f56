import { tsrError } from '@tsrun/core'
import type { Parameter } from '../model/parameter.ts'
import { describe } from '../arguments.ts'
import { checkModule, checkStateNames, hasMethods } from './arguments.ts'
import { ownerOfOptimizer, ownerOfParameters, type StatefulOptimizer } from './owners.ts'
import type { PieceOwner } from './piece.ts'

/** What is saved and put back: this rank's part of it. */
export interface CheckpointState {
  /** A model, a pipeline, or whoever holds shares of parameters. */
  readonly model: { readonly parameters: readonly Parameter[] } | PieceOwner
  /** An optimizer, or whoever holds its state; left out, the optimizer's state is not touched. */
  readonly optimizer?: StatefulOptimizer | PieceOwner
}

/**
 * Who owns the tensors of a state; the model comes first.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function ownersOf(state: CheckpointState): PieceOwner[] {
  checkStateNames(state)
  const { model, optimizer } = state
  if (!isOwner(model)) checkModule(model)
  const owners = [isOwner(model) ? model : ownerOfParameters(model.parameters)]
  if (optimizer === undefined) return owners
  if (isOwner(optimizer)) return [...owners, optimizer]
  checkOptimizer(optimizer)
  if ('parameters' in model) return [...owners, ownerOfOptimizer(optimizer, model.parameters)]
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'optimizer',
    value: 'an optimizer beside a model without parameters',
    expected: 'the owner of its state, as the one of the model',
  })
}

function checkOptimizer(optimizer: StatefulOptimizer): void {
  if (hasMethods(optimizer, ['state', 'loadState'])) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'optimizer',
    value: describe(optimizer),
    expected: 'one with state() and loadState(), or ownerOfTrainOptimizer() of one of tf.train',
  })
}

function isOwner(value: unknown): value is PieceOwner {
  return hasMethods(value, ['pieces', 'parts', 'load'])
}
