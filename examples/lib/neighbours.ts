import { monotonicNow } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/telemetry'
import { createTensor, viewOf, type Tensor } from '@tsrun/training'

/**
 * Messages between a stage and its neighbours: activations go to the next rank, their gradients to
 * the previous one. The tag distinguishes micro-batches and directions.
 */
export class Neighbours {
  readonly #group: ProcessGroup
  readonly #shape: readonly number[]
  readonly #recorder: SpanRecorder

  /** @param shape - of the activations of one micro-batch, [rows, width] */
  constructor(group: ProcessGroup, shape: readonly number[], recorder: SpanRecorder) {
    this.#recorder = recorder
    this.#group = group
    this.#shape = shape
  }

  /** Resolves when the message is sent. The tensor may be disposed before that. */
  async sendForward(microbatch: number, activation: Tensor): Promise<void> {
    await this.#send(activation, this.#group.rank + 1, 2 * microbatch)
  }

  async receiveForward(microbatch: number): Promise<Tensor> {
    return await this.#receive(this.#group.rank - 1, 2 * microbatch)
  }

  async sendBackward(microbatch: number, gradient: Tensor): Promise<void> {
    await this.#send(gradient, this.#group.rank - 1, 2 * microbatch + 1)
  }

  async receiveBackward(microbatch: number): Promise<Tensor> {
    return await this.#receive(this.#group.rank + 1, 2 * microbatch + 1)
  }

  async #send(tensor: Tensor, to: number, tag: number): Promise<void> {
    const buffer = this.#group.alloc('float32', tensor.size)
    buffer.set(viewOf(tensor))
    await this.#group.send(buffer, to, { tag })
    this.#group.free(buffer)
  }

  async #receive(from: number, tag: number): Promise<Tensor> {
    const [rows, width] = this.#shape as [number, number]
    const buffer = this.#group.alloc('float32', rows * width)
    const start = monotonicNow()
    await this.#group.recv(buffer, from, { tag })
    this.#recorder.record('wait', start, monotonicNow())
    const tensor = createTensor([rows, width], (values) => {
      values.set(buffer)
    })
    this.#group.free(buffer)
    return tensor
  }
}
