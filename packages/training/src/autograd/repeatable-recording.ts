import type { Tensor } from '@tensorflow/tfjs-core'
import { currentPass, inPass } from '../model/pass.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import type { LocalSegment } from '../model/segment.ts'
import { recordModule } from './record.ts'

/**
 * A forward pass whose recording can be freed before the backward pass, which then runs the forward
 * pass again (activation checkpointing: Chen et al., "Training Deep Nets with Sublinear Memory Cost",
 * 2016). The gradients are the same bits.
 */
export class RepeatableRecording {
  readonly #segment: LocalSegment
  readonly #input: Tensor
  readonly #options: RecordOptions
  /** Repeated in the same pass, for modules with random values. */
  readonly #pass = currentPass()
  #recording: Recording | undefined
  #isRepeated = false

  /** @param input - the caller's, to be kept for as long as `recording` is used */
  constructor(segment: LocalSegment, input: Tensor, options: RecordOptions) {
    this.#segment = segment
    this.#input = input
    this.#options = options
  }

  /** Runs the forward pass unless its recording is there. */
  get recording(): Recording {
    this.#recording ??= this.#record()
    return this.#recording
  }

  #record(): Recording {
    const run = (): Recording => recordModule(this.#segment, this.#input, this.#options)
    const isRepeated = this.#isRepeated
    this.#isRepeated = true
    return this.#pass === undefined ? run() : inPass({ ...this.#pass, isRepeated }, run)
  }

  /** Frees the recording and its output, but not the input. */
  free(): void {
    this.#recording?.dispose()
    this.#recording = undefined
  }
}
