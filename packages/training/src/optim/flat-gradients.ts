import { argumentError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { sumInto } from '../autograd/sum-gradients.ts'
import { writeTo } from '../backend/host-memory.ts'
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
export type GatheredGradients = ReturnType<typeof gatherGradients>

/**
 * Collects the gradients of micro-batches in a flat buffer, for example in the arena of a group.
 *
 * Tensors are summed, and copied to the buffer in `finish`.
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
export function gatherGradients(layout: FlatLayout, buffer: Float32Array) {
  const parts = partsOf(layout, buffer)
  const sums = new Map<string, Tensor>()
  const add = sumInto(sums)
  const dispose = () => {
    for (const gradient of sums.values()) gradient.dispose()
    sums.clear()
  }
  const listener: GradientListener = (parameter, gradient) => {
    const { name } = parameter
    const expected = layout.slots.get(name)?.shape.join(', ')
    const found = gradient.shape.join(', ')
    if (found === expected) {
      add(parameter, gradient)
      return
    }
    throw argumentError(
      `the gradient of ${name}`,
      `a tensor of shape [${found}]`,
      expected === undefined ? 'one of the layout’s parameters' : `[${expected}]`,
    )
  }
  return {
    /** Views of the buffer by parameter name, in the form that optimizers accept. */
    parts,

    /** Starts a step: drops the gradients of an unfinished one. */
    begin: dispose,

    /** Adds the gradients of backward passes to the sums, and disposes their tensors. */
    listener,

    /**
     * Ends a step. Parameters without a gradient get zeros.
     *
     * @returns a promise if gradients must be fetched; undefined if the buffer is complete
     */
    finish(): void | Promise<void> {
      const fetched = Array.from(parts, ([name, part]) => {
        const gradient = sums.get(name)
        if (gradient !== undefined) return writeTo(gradient, part)
        part.fill(0)
        return undefined
      }).filter((written) => written !== undefined)
      if (fetched.length === 0) dispose()
      else return Promise.all(fetched).then(dispose)
    },

    /** Frees the gradients of an unfinished step. */
    dispose,
  }
}
