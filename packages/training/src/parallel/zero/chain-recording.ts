import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { recordModule } from '../../autograd/record.ts'
import type { Recording, RecordOptions } from '../../model/recording.ts'
import { tf } from '../../backend/tfjs.ts'
import type { Module } from '../../model/module.ts'
import type { Unit } from './unit.ts'
import type { GradientSink, ShardedRecording } from './values.ts'

/** A piece of the model whose output is the input of the next. */
export interface ChainLink {
  readonly module: Module
  readonly unit: Unit
  /** After its backward pass the buckets of gradients before this one are complete. */
  readonly bucketEnd: number
}

export interface Chain {
  readonly links: readonly ChainLink[]
  /** What several links use: whole from the first to the last. */
  readonly root: Unit | undefined
  /** Units stay whole between the forward and the backward pass. */
  readonly keepsWhole: boolean
  /** Only the inputs of links stay. */
  readonly recomputes: boolean
}

/**
 * A forward pass link by link: while one computes, the parameters of the next come from the other
 * ranks. The backward pass goes the other way, and sends off the gradients of each.
 */
export class ChainRecording implements ShardedRecording {
  readonly #chain: Chain
  readonly #sink: GradientSink
  readonly #needsInputGradient: boolean
  readonly #held = new Set<Unit>()
  readonly #recordings: Recording[] = []
  /** Where links are computed again: the input, then their outputs. */
  readonly #kept: Tensor[] = []
  #isSpent = false

  private constructor(chain: Chain, { needsInputGradient }: RecordOptions, sink: GradientSink) {
    this.#chain = chain
    this.#sink = sink
    this.#needsInputGradient = needsInputGradient
  }

  static async record(
    x: Tensor,
    options: RecordOptions,
    chain: Chain,
    sink: GradientSink,
  ): Promise<ChainRecording> {
    const recording = new ChainRecording(chain, options, sink)
    try {
      await recording.#forward(x)
      return recording
    } catch (error) {
      recording.dispose()
      throw error
    }
  }

  get value(): Tensor {
    return this.#recordings.at(-1)?.value ?? this.#kept.at(-1)!
  }

  async backward(dy: Tensor): Promise<Tensor | undefined> {
    if (this.#isSpent) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
    this.#isSpent = true
    const { links, root } = this.#chain
    let gradient: Tensor | undefined = dy
    for (let i = links.length - 1; i >= 0; i--) {
      const former: Tensor = gradient!
      try {
        await this.#hold(links[i]!.unit)
        if (i > 0) void this.#hold(links[i - 1]!.unit)
        await this.#sink.makeRoom()
        gradient = this.#backwardLink(i, former)
      } finally {
        if (former !== dy) former.dispose()
      }
      this.#drop(links[i]!.unit)
      this.#sink.close(links[i]!.bucketEnd)
    }
    if (root !== undefined) this.#drop(root)
    this.#sink.close()
    return gradient
  }

  dispose(): void {
    this.#isSpent = true
    for (const unit of this.#held) this.#drop(unit)
    for (const recording of this.#recordings) recording.dispose()
    tf.dispose(this.#kept)
    this.#recordings.length = 0
    this.#kept.length = 0
  }

  async #forward(x: Tensor): Promise<void> {
    const { links, root, keepsWhole, recomputes } = this.#chain
    const rootIsWhole = root === undefined ? undefined : this.#hold(root)
    if (recomputes) this.#kept.push(tf.keep(tf.clone(x)))
    for (const [i, { unit }] of links.entries()) {
      const isWhole = this.#hold(unit)
      await rootIsWhole
      await isWhole
      if (i + 1 < links.length) void this.#hold(links[i + 1]!.unit)
      const recording = this.#recordLink(i, i === 0 ? x : this.value)
      if (recomputes) {
        this.#kept.push(tf.keep(tf.clone(recording.value)))
        recording.dispose()
      } else this.#recordings.push(recording)
      if (!keepsWhole) this.#drop(unit)
    }
  }

  #recordLink(i: number, x: Tensor): Recording {
    return recordModule(this.#chain.links[i]!.module, x, {
      needsInputGradient: i > 0 || this.#needsInputGradient,
    })
  }

  #backwardLink(i: number, dy: Tensor): Tensor | undefined {
    const { recomputes, root } = this.#chain
    const recording = recomputes ? this.#recordLink(i, this.#kept[i]!) : this.#recordings[i]!
    try {
      return recording.backward(dy, (parameter, gradient) => {
        this.#sink.take(parameter, gradient, root?.has(parameter) !== true)
      })
    } finally {
      // the last one's output is the caller's to read
      const isRead = !recomputes && i === this.#recordings.length - 1
      if (!isRead) recording.dispose()
    }
  }

  /** Starts to gather at once; who does not wait for it need not hear of a failure. */
  #hold(unit: Unit): Promise<void> {
    if (this.#held.has(unit)) return unit.whole ?? Promise.resolve()
    this.#held.add(unit)
    return unit.acquire()
  }

  #drop(unit: Unit): void {
    if (this.#held.delete(unit)) unit.release()
  }
}
