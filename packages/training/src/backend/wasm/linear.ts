import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../../model/recording.ts'
import type { LinearLayer, LinearPasses } from '../../tfjs/backend.ts'
import { tf } from '../../tfjs/tfjs.ts'
import { currentHeap, type WasmHeap } from './heap.ts'

/**
 * The passes of linear layers on the wasm backend. Each matrix product is one kernel call, which also
 * applies the bias and the ReLU, or the gradient of the ReLU. Results are tensors; all intermediate
 * values are in one block of memory.
 */
export class WasmLinearPasses implements LinearPasses {
  readonly output: Tensor
  readonly #heap: WasmHeap
  readonly #layers: readonly LinearLayer[]
  readonly #needsInputGradient: boolean
  readonly #batch: number
  readonly #input: Tensor
  readonly #hidden: number
  /**
   * The address of the gradients of the layers before their activations, kept from `backwardInput` to
   * `backwardParameters`. The layout is that of `#hidden`.
   */
  #saved: number | undefined
  /** The gradient of the output, kept from `backwardInput` to `backwardParameters`. */
  #lastGradient: Tensor | undefined
  /** The byte offset of each layer's output in `#hidden`. */
  readonly #offsets: readonly number[]

  constructor(layers: readonly LinearLayer[], x: Tensor, needsInputGradient: boolean) {
    const heap = currentHeap()!
    this.#heap = heap
    this.#layers = layers
    this.#needsInputGradient = needsInputGradient
    this.#batch = x.shape[0]!
    let bytes = 0
    this.#offsets = layers.map((layer) => {
      const offset = bytes
      bytes += this.#bytesOf(outputsOf(layer))
      return offset
    })
    // The block excludes the output of the last layer, which is a tensor.
    this.#hidden = heap.allocate(this.#offsets.at(-1)!)
    this.output = heap.tensor([this.#batch, outputsOf(layers.at(-1)!)])
    this.#input = tf.keep(tf.clone(x))
    layers.forEach((layer, i) => {
      this.#forward(layer, i)
    })
  }

  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined {
    const heap = this.#heap
    const layers = this.#layers
    const size = this.#bytesOf(Math.max(...layers.map(outputsOf)))
    const buffers = heap.allocate(2 * size)
    try {
      let dz = heap.addressOf(dy)
      // Alternate between two buffers: read one while writing the other.
      const other = (): number => (dz === buffers ? buffers + size : buffers)
      if (layers.at(-1)!.activation === 'relu') {
        heap.kernels.mask(other(), dz, heap.addressOf(this.output), dy.size)
        dz = other()
      }
      for (let i = layers.length - 1; i >= 0; i--) {
        const { bias, weight } = layers[i]!
        onGradient(bias, this.#biasGradient(layers[i]!, dz))
        onGradient(weight, this.#weightGradient(layers[i]!, i, dz))
        if (i === 0) break
        this.#inputGradient(other(), i, dz)
        dz = other()
      }
      if (!this.#needsInputGradient) return undefined
      const gradient = heap.tensor(this.#input.shape)
      this.#inputGradient(heap.addressOf(gradient), 0, dz)
      return gradient
    } finally {
      heap.free(buffers)
    }
  }

  backwardInput(dy: Tensor): Tensor | undefined {
    const heap = this.#heap
    const layers = this.#layers
    const last = layers.length - 1
    this.#saved = heap.allocate(this.#offsets[last]! + this.#bytesOf(outputsOf(layers[last]!)))
    this.#lastGradient = tf.keep(tf.clone(dy))
    if (layers[last]!.activation === 'relu') {
      const at = this.#saved + this.#offsets[last]!
      heap.kernels.mask(at, heap.addressOf(dy), heap.addressOf(this.output), dy.size)
    }
    for (let i = last; i > 0; i--) this.#inputGradient(this.#savedOf(i - 1), i, this.#savedOf(i))
    if (!this.#needsInputGradient) return undefined
    const gradient = heap.tensor(this.#input.shape)
    this.#inputGradient(heap.addressOf(gradient), 0, this.#savedOf(0))
    return gradient
  }

  backwardParameters(onGradient: GradientListener): void {
    for (let i = this.#layers.length - 1; i >= 0; i--) {
      const layer = this.#layers[i]!
      onGradient(layer.bias, this.#biasGradient(layer, this.#savedOf(i)))
      onGradient(layer.weight, this.#weightGradient(layer, i, this.#savedOf(i)))
    }
  }

  dispose(): void {
    if (this.#saved !== undefined) this.#heap.free(this.#saved)
    this.#lastGradient?.dispose()
    this.#heap.free(this.#hidden)
    this.output.dispose()
    this.#input.dispose()
  }

  #savedOf(i: number): number {
    const isLast = i === this.#layers.length - 1
    if (isLast && this.#layers[i]!.activation === 'linear') {
      return this.#heap.addressOf(this.#lastGradient!)
    }
    return this.#saved! + this.#offsets[i]!
  }

  #forward({ weight, bias, activation }: LinearLayer, i: number): void {
    const heap = this.#heap
    const [inputs, outputs] = weight.shape as [number, number]
    heap.multiply(
      this.#outputOf(i),
      { at: this.#outputOf(i - 1), transposed: false },
      { at: heap.addressOf(weight.value), transposed: false },
      [this.#batch, outputs, inputs],
      { start: heap.addressOf(bias.value), relu: activation === 'relu' },
    )
  }

  /** Sums the gradient over the batch in double precision. */
  #biasGradient({ bias }: LinearLayer, dz: number): Tensor {
    const gradient = this.#heap.tensor(bias.shape)
    this.#heap.sumRows(this.#heap.addressOf(gradient), dz, this.#batch, bias.shape[0]!)
    return gradient
  }

  #weightGradient({ weight }: LinearLayer, i: number, dz: number): Tensor {
    const [inputs, outputs] = weight.shape as [number, number]
    const gradient = this.#heap.tensor(weight.shape)
    this.#heap.multiply(
      this.#heap.addressOf(gradient),
      { at: this.#outputOf(i - 1), transposed: true },
      { at: dz, transposed: false },
      [inputs, outputs, this.#batch],
    )
    return gradient
  }

  /**
   * Writes the gradient of the input of layer `i`: that is the gradient of layer `i - 1` before its
   * activation.
   */
  #inputGradient(to: number, i: number, dz: number): void {
    const { weight } = this.#layers[i]!
    const [inputs, outputs] = weight.shape as [number, number]
    this.#heap.multiply(
      to,
      { at: dz, transposed: false },
      { at: this.#heap.addressOf(weight.value), transposed: true },
      [this.#batch, inputs, outputs],
      { mask: this.#layers[i - 1]?.activation === 'relu' ? this.#outputOf(i - 1) : 0 },
    )
  }

  /** Returns the address of the output of layer `i`. For -1, returns the address of the input. */
  #outputOf(i: number): number {
    if (i < 0) return this.#heap.addressOf(this.#input)
    if (i === this.#layers.length - 1) return this.#heap.addressOf(this.output)
    return this.#hidden + this.#offsets[i]!
  }

  #bytesOf(columns: number): number {
    return 4 * this.#batch * columns
  }
}

function outputsOf({ bias }: LinearLayer): number {
  return bias.shape[0]!
}
