import { tsrError } from '@tsrun/core'
import { timeSpan } from '@tsrun/distributed/record'
import type { Parameter } from '../model/parameter.ts'
import {
  checkOutputGradient,
  isLocal,
  type Exchange,
  type GradientListener,
  type LocalSegment,
  type Recording,
  type RecordOptions,
  type Segment,
} from '../model/recording.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { RepeatableRecording } from './record.ts'
import { sumInto } from './sum-gradients.ts'

/**
 * A recording of a chain of local segments and exchanges between ranks; see `recordSegments`. Its
 * backward pass is asynchronous.
 */
export interface SegmentedRecording {
  /** The output, which the recording owns. */
  readonly value: Tensor

  /**
   * Like `Recording.backward`, but asynchronous. While an exchange sends the gradient of a segment's
   * input, the gradients of the segment's parameters are computed. Dispose the recording only after the
   * promise has settled.
   *
   * @param dy - the gradient, with the shape of `value`; do not dispose it before the promise has settled
   * @param onGradient - called once per parameter, as soon as its gradient is complete; the callee
   *   disposes the tensor
   * @returns the gradient of the input, which the caller disposes; undefined unless it was requested
   * @throws ERR_TSR_BACKWARD_TWICE; ERR_TSR_ARGUMENT when `dy` has another shape;
   *   ERR_TSR_STALE_RECORDING when a parameter that the pass still needs was replaced; the errors of the
   *   collectives
   */
  backward(dy: Tensor, onGradient: GradientListener): Promise<Tensor | undefined>

  /** Frees `value` and everything saved for the backward pass. */
  dispose(): void
}

/**
 * Hooks around the passes of each local segment, for example to gather its parameters before and to free
 * them after a pass. `index` is the position of the segment in the chain. Segments before the first
 * parameter have no backward pass unless the gradient of the input is requested.
 */
export interface ChainHooks {
  beforeForward(index: number): Promise<void>
  afterForward(index: number): void
  beforeBackward(index: number): Promise<void>
  afterBackward(index: number): void
}

export interface ChainOptions extends RecordOptions {
  readonly hooks?: ChainHooks
  /**
   * For each segment, whether to keep only its input, and to repeat its forward pass before its backward
   * pass (activation checkpointing). Default: for none.
   */
  readonly recompute?: readonly boolean[]
}

/**
 * Records segments in sequence: the output of each one is the input of the next. Awaits the exchanges
 * between ranks.
 *
 * @param x - the input; do not dispose it before the promise has settled
 */
export async function recordChain(
  segments: readonly Segment[],
  x: Tensor,
  { needsInputGradient, hooks, recorder, recompute = [] }: ChainOptions,
): Promise<SegmentedRecording> {
  const keepsInputs = recompute.includes(true)
  const links: ({ segment: LocalSegment; pass: RepeatableRecording } | Exchange)[] = []
  /** The index of the first link that has a backward pass. */
  let first = needsInputGradient ? 0 : undefined
  /**
   * The tensors that the chain owns. If any segment is recomputed, these are the inputs of all links.
   * Otherwise, the chain owns the output of the last exchange until the next segment has used it.
   */
  const kept: Tensor[] = []
  let isSpent = false

  const keep = (tensor: Tensor) => {
    kept.push(tensor)
    return tensor
  }
  const freeKept = () => {
    tf.dispose(kept)
    kept.length = 0
  }
  const dispose = () => {
    isSpent = true
    for (const link of links) if ('pass' in link) link.pass.free()
    freeKept()
  }
  let value = keepsInputs ? keep(tf.keep(tf.clone(x))) : x
  const record = (segment: LocalSegment, index: number) => {
    const needsGradient = first !== undefined
    if (segment.parameters.length > 0) first ??= index
    const pass = new RepeatableRecording(segment, value, { needsInputGradient: needsGradient })
    const output = pass.recording.value
    links.push({ segment, pass })
    if (recompute[index] === true) {
      value = keep(tf.keep(tf.clone(output)))
      pass.free()
    } else {
      value = output
      // Free the input: the recording has saved the tensors that its backward pass needs.
      if (!keepsInputs) freeKept()
    }
  }
  try {
    for (const segment of segments) {
      if (isLocal(segment)) {
        const index = links.length
        if (hooks !== undefined) await hooks.beforeForward(index)
        timeSpan(recorder, 'F', {}, () => {
          record(segment, index)
        })
        hooks?.afterForward(index)
      } else {
        const next = await segment.forward(value)
        if (!keepsInputs) freeKept()
        links.push(segment)
        value = keep(next)
      }
    }
  } catch (error) {
    dispose()
    throw error
  }

  /**
   * Runs the backward pass of a segment and of the exchange before it. Computes the gradient of the
   * segment's input first. Computes the gradients of its parameters during the exchange.
   */
  const backwardInto = async (
    exchange: Exchange,
    recording: Recording,
    dy: Tensor,
    onGradient: GradientListener,
  ) => {
    const dx = timeSpan(recorder, 'I', {}, () => recording.backwardInput!(dy)!)
    try {
      const sent = exchange.backward(dx)
      try {
        timeSpan(recorder, 'W', {}, () => {
          recording.backwardParameters!(onGradient)
        })
      } catch (error) {
        await sent.then(
          (received) => {
            received.dispose()
          },
          () => undefined,
        )
        throw error
      }
      return await sent
    } finally {
      dx.dispose()
    }
  }
  const runBackward = async (
    dy: Tensor,
    from: number,
    gradients: ReturnType<typeof sharedGradients>,
  ) => {
    let gradient: Tensor | undefined = dy
    for (let index = links.length - 1; index >= from; index--) {
      const former: Tensor = gradient!
      try {
        const link = links[index]!
        if (!('pass' in link)) {
          gradient = await link.backward(former)
          continue
        }
        if (hooks !== undefined) await hooks.beforeBackward(index)
        const before = index > from ? links[index - 1] : undefined
        const { recording } = link.pass
        if (before === undefined || 'pass' in before) {
          gradient = timeSpan(recorder, 'B', {}, () =>
            recording.backward(former, gradients.listener),
          )
        } else {
          gradient = await backwardInto(before, recording, former, gradients.listener)
        }
        timeSpan(recorder, 'B', { name: 'free' }, () => {
          gradients.finish(link.segment)
          // Keep the last recording, because the caller may still read its output.
          if (recording.value !== value) link.pass.free()
        })
        hooks?.afterBackward(index)
        if (before !== undefined && !('pass' in before)) index--
      } catch (error) {
        if (gradient !== former) gradient?.dispose()
        throw error
      } finally {
        if (former !== dy) former.dispose()
      }
    }
    return needsInputGradient ? gradient : undefined
  }

  return {
    value,
    async backward(dy, onGradient) {
      if (isSpent) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
      checkOutputGradient(dy, value)
      isSpent = true
      const from = first ?? links.length
      const recorded = links.slice(from).flatMap((link) => ('pass' in link ? link.segment : []))
      const gradients = sharedGradients(recorded, onGradient)
      try {
        return await runBackward(dy, from, gradients)
      } finally {
        gradients.dispose()
      }
    },
    dispose,
  }
}

/** The parameters of a segment. */
type Parameters = Pick<LocalSegment, 'parameters'>

/** Reports each gradient once. For a parameter of several segments, reports the sum. */
export function sharedGradients(segments: readonly Parameters[], onGradient: GradientListener) {
  /** The number of pending backward passes of each parameter that several segments use. */
  const left = new Map<Parameter, number>()
  const sums = new Map<string, Tensor>()
  const add = sumInto(sums)
  const all = segments.flatMap(({ parameters }) => parameters)
  for (const parameter of all) left.set(parameter, (left.get(parameter) ?? 0) + 1)
  for (const [parameter, count] of left) if (count === 1) left.delete(parameter)
  const take: GradientListener = (parameter, gradient) => {
    const next = left.has(parameter) ? add : onGradient
    next(parameter, gradient)
  }
  return {
    /** The gradient listener that segments report to. */
    listener: left.size === 0 ? onGradient : take,
    finish({ parameters }: Parameters) {
      for (const parameter of parameters) {
        const count = left.get(parameter)
        if (count === undefined) continue
        left.set(parameter, count - 1)
        const sum = sums.get(parameter.name)
        if (count > 1 || sum === undefined) continue
        sums.delete(parameter.name)
        onGradient(parameter, sum)
      }
    },
    /** Frees sums that were not reported because a pass failed. */
    dispose() {
      for (const sum of sums.values()) sum.dispose()
      sums.clear()
    },
  }
}
