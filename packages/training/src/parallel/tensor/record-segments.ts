import { timeSpan } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { recordChain, type SegmentedRecording } from '../../autograd/chain.ts'
import { modulesOf, type Module } from '../../model/module.ts'
import type { RecordOptions } from '../../model/recording.ts'
import { isLocal, type LocalSegment, type Segment } from '../../model/segment.ts'
import { checkBackendBlocks } from '../requirements.ts'

/**
 * Records like `recordModule` a model that ranks share, on every backend. The model is cut at its
 * collectives, each segment is recorded separately (one vector-Jacobian product per segment), and the
 * collectives between segments are awaited. Values, gradients and messages are bitwise equal to
 * `recordModule`.
 *
 * Chains of layers (such as a `ShardedMLP` of `columnParallel` and `rowParallel` layers) and modules with
 * `segments` are cut. Modules with other collectives (attention by heads, blocks with branches,
 * `vocabParallel`, parts of sequences) stay in one piece, and their passes block.
 *
 * All ranks make the same passes in the same order, and await each before the next one starts. There may
 * be any number of recordings, but only one pass at a time.
 *
 * @param x - the input of `recordModule`, the same on all ranks; the caller keeps it until the promise
 *   has settled
 * @throws ERR_TSR_BACKEND, before anything is sent, for a piece whose passes block on webgpu;
 *   ERR_TSR_NESTED_RECORDING; the errors of the collectives
 *
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
  const segments = timeSpan(options.recorder, 'F', { name: 'segments' }, () => segmentsOf(model))
  return await recordChain(segments, x, options)
}

/** Cuts a model at its collectives. Neighbours without a collective between them are one segment. */
function segmentsOf(model: Module): readonly Segment[] {
  const segments = cut(model, 'the model')
  // a model without collectives is recorded as a whole, with its own `record` if it has one
  return segments.every(isLocal) ? [model] : segments.reduce<readonly Segment[]>(join, [])
}

/**
 * The segments of a module that cannot be cut, because its collectives are inside its passes.
 *
 * @throws ERR_TSR_BACKEND when passes cannot block
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
  // not a chain: for example a block with branches
  const isShared = Array.from(modulesOf(module)).some((inner) => 'segments' in inner.module)
  return isShared ? inOnePiece(module, name) : [module]
}

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

/** Hides the segment's own `record`: the tape gives results bitwise equal to the model in one piece. */
function asLocal(segment: LocalSegment): LocalSegment {
  return { parameters: segment.parameters, forward: (x) => segment.forward(x) }
}
