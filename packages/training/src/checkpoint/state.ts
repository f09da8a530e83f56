import { tsrError } from '@tsrun/core'
import type { Parameter } from '../nn/parameter.ts'
import { ownerOfOptimizer, ownerOfParameters, type StatefulOptimizer } from './owners.ts'
import type { PieceOwner } from './piece.ts'

/** What is saved and put back: this rank's part of it. */
export interface CheckpointState {
  /** A model, a pipeline, or whoever holds shares of parameters. */
  readonly model: { readonly parameters: readonly Parameter[] } | PieceOwner
  /** An optimizer, or whoever holds its state; left out, the optimizer's state is not touched. */
  readonly optimizer?: StatefulOptimizer | PieceOwner
}

/** Who owns the tensors of a state; the model comes first. */
export function ownersOf({ model, optimizer }: CheckpointState): PieceOwner[] {
  const owners = [isOwner(model) ? model : ownerOfParameters(model.parameters)]
  if (optimizer === undefined) return owners
  if (isOwner(optimizer)) return [...owners, optimizer]
  if ('parameters' in model) return [...owners, ownerOfOptimizer(optimizer, model.parameters)]
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'optimizer',
    value: 'an optimizer beside a model without parameters',
    expected: 'the owner of its state, as the one of the model',
  })
}

function isOwner(value: object): value is PieceOwner {
  return 'pieces' in value && 'parts' in value && 'load' in value
}
