import { argumentError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { sumInto } from '../autograd/sum-gradients.ts'
import { isHostAccessible } from '../backend/current.ts'
import { addTo, writeTo } from '../backend/host-memory.ts'
import type { Parameter } from '../model/parameter.ts'
import type { GradientListener } from '../model/recording.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'

/** The position of one parameter's values in a flat buffer. */
export interface FlatSlot {
  readonly shape: readonly number[]
  /** The index of the parameter's first value. */
  readonly offset: number
  /** The number of the parameter's values. */
  readonly length: number
}

/** The positions of parameters in a flat float32 buffer. */
export interface FlatLayout {
  /** The positions by parameter name, in the order of the buffer, without gaps. */
  readonly slots: ReadonlyMap<string, FlatSlot>
  /** The number of values of all parameters together. */
  readonly length: number
}

/**
 * Lays out parameters one after the other, in the given order. The same list gives the same layout
 * on every rank.
 *
 * @throws ERR_TSR_ARGUMENT when two parameters have the same name
 *
 * @example
 * const layout = flatten(model.parameters)
 * const buffer = group.alloc('float32', layout.length)
 */
export function flatten(parameters: readonly Pick<Parameter, 'name' | 'shape'>[]): FlatLayout {
  const slots = new Map<string, FlatSlot>()
  let offset = 0
  for (const { name, shape } of parameters) {
    if (slots.has(name)) {
      throw argumentError(
        'parameters',
        `a list with two parameters named ${name}`,
        'a different name for each',
      )
    }
    const length = sizeOf(shape)
    slots.set(name, { shape, offset, length })
    offset += length
  }
  return { slots, length: offset }
}

/** Returns views of a flat buffer by parameter name. */
export function partsOf(
  { slots, length }: FlatLayout,
  buffer: Float32Array,
): ReadonlyMap<string, Float32Array> {
  if (buffer.length !== length) {
    throw argumentError(
      'buffer',
      `one of ${buffer.length} values`,
      `the size of the layout, ${length} values`,
    )
  }
  return new Map(
    Array.from(slots, ([name, slot]) => {
      return [name, buffer.subarray(slot.offset, slot.offset + slot.length)]
    }),
  )
}

/** Collects the gradients of all parameters in one buffer during backward passes. */
export interface GatheredGradients {
  /** Views of the buffer by parameter name, in the form that optimizers accept. */
  readonly parts: ReadonlyMap<string, Float32Array>

  /** Starts a step: the first new gradient of a parameter overwrites the old one. */
  begin(): void

  /** Adds the gradients of backward passes to the sums, and disposes their tensors. */
  readonly listener: GradientListener

  /**
   * Ends a step. Parameters without a gradient get zeros.
   *
   * @returns a promise if gradients must be fetched; undefined if the buffer is complete
   */
  finish(): void | Promise<void>

  /** Frees the gradients of an unfinished step. */
  dispose(): void
}

/**
 * Collects the gradients of micro-batches in a flat buffer, for example in the arena of a group.
 *
 * If the host can access the memory of tensors (wasm, cpu), each gradient is added to its part of
 * the buffer immediately and its tensor is disposed. Otherwise tensors are summed on the device and
 * fetched in `finish`.
 *
 * @param buffer - with `layout.length` values
 * @throws ERR_TSR_ARGUMENT when the buffer has another length. The listener throws this error for a
 *   parameter that is not in the layout and for a gradient of another shape.
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
  const partFor = (name: string, { shape }: Tensor) => {
    const expected = layout.slots.get(name)?.shape.join(', ')
    const found = shape.join(', ')
    if (found === expected) return parts.get(name)!
    throw argumentError(
      `the gradient of ${name}`,
      `a tensor of shape [${found}]`,
      expected === undefined ? 'one of the layout’s parameters' : `[${expected}]`,
    )
  }
  const dispose = () => {
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
      const part = partFor(name, gradient)
      if (isHostAccessible()) {
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
