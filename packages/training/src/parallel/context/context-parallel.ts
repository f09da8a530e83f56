import { argumentError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { modulesOf, type Module } from '../../model/module.ts'
import { isAttention } from '../../nn/attention.ts'
import { isDropout } from '../../nn/dropout.ts'
import { hasPositions } from '../../nn/embedding.ts'
import type { PipelineModel } from '../recipe.ts'
import { checkGroup } from '../requirements.ts'
import { ringAttention, zigzagPositions } from './ring-attention.ts'

/**
 * Enables context parallelism in a model, in place: divides each sequence among the ranks of a group.
 * Each rank has all parameters, but only its zigzag positions of every sequence (see `zigzagPositions`).
 * Attention layers exchange keys and values in a ring (see `ringAttention`). Given a pipeline recipe,
 * returns a recipe for divided sequences. Call `contextParallel` before `parallelize`. In a group of one
 * rank the model is unchanged.
 *
 * The loss of a rank is the mean over its positions. Average losses and gradients over this group and the
 * data parallel group.
 *
 * @example
 * const model = contextParallel(new GPT({ block: 64 }), mesh.cp)
 * const positions = zigzagPositions(64, mesh.cp)
 * const { inputs, labels } = textBatch(text, step, { batch, block: 64, positions })
 *
 * @throws ERR_TSR_ARGUMENT without a group, when the model has no attention, or when `parallelize`
 *   has already divided the sequences of the model
 */
export function contextParallel<M extends Module>(model: M, group: ProcessGroup): M
export function contextParallel(recipe: PipelineModel, group: ProcessGroup): PipelineModel
export function contextParallel(
  target: Module | PipelineModel,
  group: ProcessGroup,
): Module | PipelineModel {
  checkGroup(group)
  if (!('slice' in target)) return share(target, group)
  return {
    layers: target.layers,
    slice: (from, to) => share(target.slice(from, to), group),
    ...(target.search !== undefined && { search: () => target.search!() }),
  }
}

function share<M extends Module>(model: M, group: ProcessGroup) {
  const core = ringAttention(group)
  let found = false
  for (const { module } of modulesOf(model)) {
    if (module.kind === 'sequence-parallel') {
      throw argumentError(
        'the model of contextParallel',
        'one whose sequences are already divided',
        'contextParallel before parallelize',
      )
    }
    if (isAttention(module)) {
      found = true
      if (group.size > 1) module.core = core
    } else if ((hasPositions(module) || isDropout(module)) && group.size > 1) {
      module.positions = (length) => zigzagPositions(length * group.size, group)
    }
  }
  if (found) return model
  throw argumentError(
    'the model of contextParallel',
    'one without attention',
    'one that sees a sequence, for example a GPT',
  )
}
