import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../model/recording.ts'
import { reachesTensors } from '../backend/bridge/select.ts'
import { addTo, writeTo } from '../backend/host-memory.ts'
import { sumInto } from '../autograd/sum-gradients.ts'
import { partsOf, type FlatLayout } from './flatten.ts'

/** Gradients of all parameters in one buffer, as they come out of backward passes. */
export interface GatheredGradients {
  /** By name of the parameter, the parts of the buffer: an optimizer takes them as they are. */
  readonly parts: ReadonlyMap<string, Float32Array>

  /** Starts a step: what comes first for a parameter takes the place of its old gradient. */
  begin(): void

  /** Takes the gradients of backward passes, and sums them; no tensor is left of them. */
  readonly listener: GradientListener

  /**
   * Ends a step: parameters that got no gradient have zeros.
   *
   * @returns a promise where gradients have to be fetched; nothing where the buffer is complete
   */
  finish(): void | Promise<void>

  /** Frees the gradients of a step that does not reach its end. */
  dispose(): void
}

/**
 * Gathers the gradients of micro-batches in a flat buffer, for example in the arena of a group.
 *
 * Where the host reaches the memory of tensors (wasm, cpu), each gradient is added to its part at
 * once, and its tensor freed: the only copy there is. Elsewhere tensors are summed on the device and
 * fetched in `finish`.
 *
 * @param buffer - of `layout.length` values
 * @throws ERR_TSR_ARGUMENT when the buffer has another length; from the listener: for a parameter
 *   that the layout has not, or a gradient of another shape
 *
 * @example
 * const layout = flatten(model.parameters)
 * const gathered = gatherGradients(layout, group.alloc('float32', layout.length))
 * gathered.begin()
 * for (const { recording, dy } of microbatches) recording.backward(dy, gathered.listener)
 * await gathered.finish()
 * await group.allReduce(buffer, { op: 'avg' })
 * optimizer.step(model.parameters, gathered.parts)
 */
export function gatherGradients(layout: FlatLayout, buffer: Float32Array): GatheredGradients {
  const parts = partsOf(layout, buffer)
  const seen = new Set<string>()
  const held = new Map<string, Tensor>()
  const hold = sumInto(held)
  const dispose = (): void => {
    for (const gradient of held.values()) gradient.dispose()
    held.clear()
    seen.clear()
  }
  return {
    parts,
    begin: dispose,
    dispose,
    listener(parameter, gradient) {
      const { name } = parameter
      const part = partFor(layout, parts, name, gradient)
      if (reachesTensors()) {
        if (seen.has(name)) addTo(part, gradient)
        else void writeTo(gradient, part)
        gradient.dispose()
      } else hold(parameter, gradient)
      seen.add(name)
    },
    finish() {
      for (const [name, part] of parts) if (!seen.has(name)) part.fill(0)
      const fetched = Array.from(held, ([name, gradient]) =>
        writeTo(gradient, parts.get(name)!),
      ).filter((written) => written !== undefined)
      if (fetched.length === 0) dispose()
      else return Promise.all(fetched).then(dispose)
    },
  }
}

function partFor(
  { slots }: FlatLayout,
  parts: ReadonlyMap<string, Float32Array>,
  name: string,
  gradient: Tensor,
): Float32Array {
  const expected = slots.get(name)?.shape.join(', ')
  const found = gradient.shape.join(', ')
  if (found === expected) return parts.get(name)!
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: `the gradient of ${name}`,
    value: `a tensor of shape [${found}]`,
    expected: expected === undefined ? 'one of the layout’s parameters' : `[${expected}]`,
  })
}
