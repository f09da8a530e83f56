import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkOutputGradient } from './check-tensors.ts'
import { recordModule } from './record.ts'
import type { GradientListener, Recording, RecordOptions } from '../model/recording.ts'
import { isLocal, type Exchange, type LocalSegment, type Segment } from '../model/segment.ts'
import type { SegmentedRecording } from './segmented-recording.ts'
import { SharedGradients } from './shared-gradients.ts'

/** Records segments one behind the other; see `recordSegments`. */
export async function recordChain(
  segments: readonly Segment[],
  x: Tensor,
  options: RecordOptions,
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
  readonly recording: Recording
}

class Chain implements SegmentedRecording {
  readonly #needsInputGradient: boolean
  readonly #recordings: Recording[] = []
  /** Those whose gradients somebody wants: without what is in front of all parameters. */
  readonly #links: (RecordedSegment | Exchange)[] = []
  #value: Tensor
  /** The value, where no recording owns it: an exchange has made it. */
  #loose: Tensor | undefined
  #isSpent = false

  constructor(x: Tensor, { needsInputGradient }: RecordOptions) {
    this.#value = x
    this.#needsInputGradient = needsInputGradient
  }

  get value(): Tensor {
    return this.#value
  }

  async append(segment: Segment): Promise<void> {
    const former = this.#loose
    const isWanted = this.#needsInputGradient || this.#links.length > 0
    if (isLocal(segment)) {
      const recording = recordModule(segment, this.#value, { needsInputGradient: isWanted })
      this.#recordings.push(recording)
      if (isWanted || segment.parameters.length > 0) this.#links.push({ segment, recording })
      this.#value = recording.value
      this.#loose = undefined
    } else {
      this.#value = this.#loose = await segment.forward(this.#value)
      if (isWanted) this.#links.push(segment)
    }
    // a recording has saved what it needs of it
    former?.dispose()
  }

  async backward(dy: Tensor, onGradient: GradientListener): Promise<Tensor | undefined> {
    if (this.#isSpent) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
    checkOutputGradient(dy, this.#value)
    this.#isSpent = true
    const recorded = this.#links.flatMap((link) => ('recording' in link ? link.segment : []))
    const gradients = new SharedGradients(recorded, onGradient)
    try {
      return await this.#backward(dy, gradients)
    } finally {
      gradients.dispose()
    }
  }

  async #backward(dy: Tensor, gradients: SharedGradients): Promise<Tensor | undefined> {
    const links = [...this.#links]
    let gradient: Tensor | undefined = dy
    for (let link = links.pop(); link !== undefined; link = links.pop()) {
      const former: Tensor = gradient!
      try {
        if ('recording' in link) {
          const before = links.at(-1)
          if (before === undefined || 'recording' in before) {
            gradient = link.recording.backward(former, gradients.listener)
          } else {
            links.pop()
            gradient = await backwardInto(before, link.recording, former, gradients.listener)
          }
          gradients.finish(link.segment)
        } else gradient = await link.backward(former)
      } catch (error) {
        if (gradient !== former) gradient?.dispose()
        throw error
      } finally {
        if (former !== dy) former.dispose()
      }
    }
    return this.#needsInputGradient ? gradient : undefined
  }

  dispose(): void {
    this.#isSpent = true
    for (const recording of this.#recordings) recording.dispose()
    this.#loose?.dispose()
  }
}

/**
 * Backward through a segment and the exchange in front of it: the gradient of the input goes off
 * first, and those of the parameters are computed while it travels.
 */
async function backwardInto(
  exchange: Exchange,
  recording: Recording,
  dy: Tensor,
  onGradient: GradientListener,
): Promise<Tensor> {
  const dx = recording.backwardInput!(dy)!
  try {
    const sent = exchange.backward(dx)
    try {
      recording.backwardParameters!(onGradient)
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
