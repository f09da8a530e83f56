import { tsrError } from '@tsrun/core'
import { timeSpan, type SpanRecorder } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from '../model/parameter.ts'
import {
  checkOutputGradient,
  type GradientListener,
  type Recording,
  type RecordOptions,
} from '../model/recording.ts'
import { isLocal, type Exchange, type LocalSegment, type Segment } from '../model/segment.ts'
import { tf } from '../tfjs/tfjs.ts'
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
  options: ChainOptions,
): Promise<SegmentedRecording> {
  const chain = new Chain(x, options)
  try {
    for (const segment of segments) await chain.append(segment)
    return chain
  } catch (error) {
    chain.dispose()
    throw error
  }
}

interface RecordedSegment {
  readonly segment: LocalSegment
  readonly pass: RepeatableRecording
}

class Chain implements SegmentedRecording {
  readonly #needsInputGradient: boolean
  readonly #hooks: ChainHooks | undefined
  readonly #recompute: readonly boolean[]
  readonly #keepsInputs: boolean
  readonly #recorder: SpanRecorder | undefined
  readonly #links: (RecordedSegment | Exchange)[] = []
  #first: number | undefined
  #value: Tensor
  /**
   * The tensors that the chain owns: if a segment is recomputed, the inputs of all links; otherwise the
   * output of the last exchange until the next segment has used it.
   */
  readonly #kept: Tensor[] = []
  #isSpent = false

  constructor(x: Tensor, { needsInputGradient, hooks, recorder, recompute = [] }: ChainOptions) {
    this.#needsInputGradient = needsInputGradient
    this.#hooks = hooks
    this.#recompute = recompute
    this.#keepsInputs = recompute.includes(true)
    this.#recorder = recorder
    this.#value = this.#keepsInputs ? this.#keep(tf.keep(tf.clone(x))) : x
    if (needsInputGradient) this.#first = 0
  }

  get value(): Tensor {
    return this.#value
  }

  async append(segment: Segment): Promise<void> {
    if (isLocal(segment)) {
      const index = this.#links.length
      if (this.#hooks !== undefined) await this.#hooks.beforeForward(index)
      timeSpan(this.#recorder, 'F', {}, () => {
        this.#record(segment, index)
      })
      this.#hooks?.afterForward(index)
    } else {
      const next = await segment.forward(this.#value)
      if (!this.#keepsInputs) this.#freeKept()
      this.#links.push(segment)
      this.#value = this.#keep(next)
    }
  }

  async backward(dy: Tensor, onGradient: GradientListener): Promise<Tensor | undefined> {
    if (this.#isSpent) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
    checkOutputGradient(dy, this.#value)
    this.#isSpent = true
    const links = this.#links.slice(this.#first ?? this.#links.length)
    const recorded = links.flatMap((link) => ('pass' in link ? link.segment : []))
    const gradients = new SharedGradients(recorded, onGradient)
    try {
      return await this.#backward(dy, gradients)
    } finally {
      gradients.dispose()
    }
  }

  dispose(): void {
    this.#isSpent = true
    for (const link of this.#links) if ('pass' in link) link.pass.free()
    this.#freeKept()
  }

  #record(segment: LocalSegment, index: number): void {
    const needsInputGradient = this.#first !== undefined
    if (segment.parameters.length > 0) this.#first ??= index
    const pass = new RepeatableRecording(segment, this.#value, { needsInputGradient })
    const { value } = pass.recording
    this.#links.push({ segment, pass })
    if (this.#recompute[index] === true) {
      this.#value = this.#keep(tf.keep(tf.clone(value)))
      pass.free()
    } else {
      this.#value = value
      // Free the input: the recording has saved the tensors that its backward pass needs.
      if (!this.#keepsInputs) this.#freeKept()
    }
  }

  async #backward(dy: Tensor, gradients: SharedGradients): Promise<Tensor | undefined> {
    const first = this.#first ?? this.#links.length
    let gradient: Tensor | undefined = dy
    for (let index = this.#links.length - 1; index >= first; index--) {
      const former: Tensor = gradient!
      try {
        const link = this.#links[index]!
        if (!('pass' in link)) {
          gradient = await link.backward(former)
          continue
        }
        if (this.#hooks !== undefined) await this.#hooks.beforeBackward(index)
        const before = index > first ? this.#links[index - 1] : undefined
        const { recording } = link.pass
        if (before === undefined || 'pass' in before) {
          gradient = timeSpan(this.#recorder, 'B', {}, () =>
            recording.backward(former, gradients.listener),
          )
        } else {
          gradient = await this.#backwardInto(before, recording, former, gradients.listener)
        }
        timeSpan(this.#recorder, 'B', { name: 'free' }, () => {
          gradients.finish(link.segment)
          // Keep the last recording, because the caller may still read its output.
          if (recording.value !== this.#value) link.pass.free()
        })
        this.#hooks?.afterBackward(index)
        if (before !== undefined && !('pass' in before)) index--
      } catch (error) {
        if (gradient !== former) gradient?.dispose()
        throw error
      } finally {
        if (former !== dy) former.dispose()
      }
    }
    return this.#needsInputGradient ? gradient : undefined
  }

  /**
   * Runs the backward pass of a segment and of the exchange before it. Computes the gradient of the
   * segment's input first. Computes the gradients of its parameters during the exchange.
   */
  async #backwardInto(
    exchange: Exchange,
    recording: Recording,
    dy: Tensor,
    onGradient: GradientListener,
  ): Promise<Tensor> {
    const dx = timeSpan(this.#recorder, 'I', {}, () => recording.backwardInput!(dy)!)
    try {
      const sent = exchange.backward(dx)
      try {
        timeSpan(this.#recorder, 'W', {}, () => {
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

  #keep(tensor: Tensor): Tensor {
    this.#kept.push(tensor)
    return tensor
  }

  #freeKept(): void {
    tf.dispose(this.#kept)
    this.#kept.length = 0
  }
}

/**
 * Reports the gradient of each parameter once. If several segments use a parameter, reports the sum after
 * the backward passes of all these segments.
 */
class SharedGradients {
  /** The gradient listener that segments report to. */
  readonly listener: GradientListener
  readonly #onGradient: GradientListener
  /** The number of pending backward passes of each parameter that several segments use. */
  readonly #left = new Map<Parameter, number>()
  readonly #sums = new Map<string, Tensor>()
  readonly #add = sumInto(this.#sums)

  constructor(segments: readonly LocalSegment[], onGradient: GradientListener) {
    this.#onGradient = onGradient
    const all = segments.flatMap(({ parameters }) => parameters)
    for (const parameter of all) this.#left.set(parameter, (this.#left.get(parameter) ?? 0) + 1)
    for (const [parameter, count] of this.#left) if (count === 1) this.#left.delete(parameter)
    const take: GradientListener = (parameter, gradient) => {
      const next = this.#left.has(parameter) ? this.#add : onGradient
      next(parameter, gradient)
    }
    this.listener = this.#left.size === 0 ? onGradient : take
  }

  finish({ parameters }: LocalSegment): void {
    for (const parameter of parameters) {
      const left = this.#left.get(parameter)
      if (left === undefined) continue
      this.#left.set(parameter, left - 1)
      const sum = this.#sums.get(parameter.name)
      if (left > 1 || sum === undefined) continue
      this.#sums.delete(parameter.name)
      this.#onGradient(parameter, sum)
    }
  }

  /** Frees sums that were not reported because a pass failed. */
  dispose(): void {
    for (const sum of this.#sums.values()) sum.dispose()
    this.#sums.clear()
  }
}
