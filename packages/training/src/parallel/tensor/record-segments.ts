import { timeSpan } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { recordChain, type SegmentedRecording } from '../../autograd/chain.ts'
import { modulesOf, type Module } from '../../model/module.ts'
import {
  isLocal,
  type LocalSegment,
  type RecordOptions,
  type Segment,
} from '../../model/recording.ts'
import { checkBackendBlocks } from '../requirements.ts'

/**
 * Records a tensor parallel model like `recordModule`, but awaits its collectives, so it works on every
 * backend. The model is cut at its collectives into segments, which are recorded separately. Values,
 * gradients and messages are bitwise equal to those of `recordModule`.
 *
 * Chains of layers (such as a `ShardedMLP` with `columnParallel` and `rowParallel` layers) and modules
 * with `segments` are cut. Other modules with collectives stay in one piece, and their passes block:
 * attention by heads, blocks with branches, `vocabParallel` layers and sequence parallel layers.
 *
 * All ranks run the same passes in the same order, and await each pass before the next. Several
 * recordings may exist at a time, but only one pass may run.
 *
 * @param x - the input, the same on all ranks; do not dispose it before the promise has settled
 * @throws ERR_TSR_BACKEND, before anything is sent, when a module's passes block and the backend is
 *   webgpu; ERR_TSR_NESTED_RECORDING; the errors of the collectives
 * @example
 * const outputs = await recordSegments(model, x, { needsInputGradient: false })
 * const loss = recordLoss(crossEntropy, outputs.value, labels)
 * const dy = loss.backward(one, () => undefined)!
 * await outputs.backward(dy, sumInto(gradients))
 */
export async function recordSegments(
  model: Module,
  x: Tensor,
  options: RecordOptions,
): Promise<SegmentedRecording> {
  const segments = timeSpan(options.recorder, 'F', { name: 'segments' }, () => {
    const parts = cut(model, 'the model')
    // Record a model without collectives as a whole, because it may have its own `record`.
    return parts.every(isLocal) ? [model] : parts.reduce<readonly Segment[]>(join, [])
  })
  return await recordChain(segments, x, options)
}

/**
 * Returns a module with collectives inside its passes as one segment.
 *
 * @throws ERR_TSR_BACKEND when the backend does not allow passes to block
 */
export function inOnePiece(module: Module, name: string): readonly Segment[] {
  checkBackendBlocks(name)
  return [module]
}

function cut(module: Module, name: string): readonly Segment[] {
  if (module.segments !== undefined) return module.segments()
  const { children = {}, layers } = module
  if (layers !== undefined) {
    const names = new Map(Object.entries(children).map(([key, child]) => [child, key]))
    return layers.flatMap((layer) => cut(layer, names.get(layer) ?? 'a layer'))
  }
  // The module is not a chain of layers: for example, a block with branches.
  const isShared = Array.from(modulesOf(module)).some((inner) => 'segments' in inner.module)
  return isShared ? inOnePiece(module, name) : [module]
}

/** Adds a segment. Merges it with the last one if there is no collective between them. */
function join(segments: readonly Segment[], next: Segment): readonly Segment[] {
  const last = segments.at(-1)
  if (!isLocal(next)) return [...segments, next]
  if (last === undefined || !isLocal(last)) return [...segments, asLocal(next)]
  return [
    ...segments.slice(0, -1),
    {
      parameters: [...new Set([...last.parameters, ...next.parameters])],
      forward: (x) => next.forward(last.forward(x)),
    },
  ]
}

/** Hides the segment's own `record`. The tape gives results bitwise equal to a recording of the model. */
function asLocal(segment: LocalSegment): LocalSegment {
  return { parameters: segment.parameters, forward: (x) => segment.forward(x) }
}
