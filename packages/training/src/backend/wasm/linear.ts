import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener } from '../../model/recording.ts'
import type {
  LazyOperation,
  LinearLayer,
  LinearOperands,
  LinearPasses,
} from '../../tfjs/backend.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { currentHeap, type ProductSize } from './heap.ts'
import { passes } from './passes.ts'

/** One linear layer as an operation on the tape. */
export function wasmLinear(
  { x, weight, bias }: LinearOperands,
  relu: boolean,
): LazyOperation<keyof LinearOperands> {
  const heap = currentHeap()!
  const [inputs, outputs] = [weight.shape[0], bias.size]
  const rows = x.size / inputs
  return {
    saves: ['x', 'weight'],
    savesOutput: relu,
    forward() {
      const y = heap.scoped([...x.shape.slice(0, -1), outputs])
      heap.multiply(
        heap.addressOf(y),
        { at: heap.addressOf(x) },
        { at: heap.addressOf(weight) },
        [rows, outputs, inputs],
        { start: heap.addressOf(bias), relu },
      )
      return y
    },
    gradients(dy, { x, weight }, y) {
      const dz = { at: heap.addressOf(y === undefined ? dy : passes.reluGradient(dy, y)) }
      return {
        x() {
          const dx = heap.scoped(x.shape)
          const right = { at: heap.addressOf(weight), transposed: true }
          heap.multiply(heap.addressOf(dx), dz, right, [rows, inputs, outputs])
          return dx
        },
        weight() {
          const dWeight = heap.scoped(weight.shape)
          const left = { at: heap.addressOf(x), transposed: true }
          heap.multiply(heap.addressOf(dWeight), left, dz, [inputs, outputs, rows])
          return dWeight
        },
        bias() {
          const dBias = heap.scoped(bias.shape)
          heap.kernels.sum_rows(heap.addressOf(dBias), dz.at, rows, outputs)
          return dBias
        },
      }
    },
  }
}

/**
 * The passes of linear layers on the wasm backend. Each matrix product is one kernel call, which also
 * applies the bias and the ReLU, or the gradient of the ReLU. Results are tensors; all intermediate
 * values are in one block of memory.
 */
export function wasmLinearPasses(
  layers: readonly LinearLayer[],
  x: Tensor,
  needsInputGradient: boolean,
): LinearPasses {
  const heap = currentHeap()!
  const batch = x.shape[0]
  const last = layers.length - 1
  const bytesOf = (columns: number) => 4 * batch * columns
  let bytes = 0
  /** The byte offset of each layer's output in `hidden`. */
  const offsets = layers.map((layer) => {
    const offset = bytes
    bytes += bytesOf(outputsOf(layer))
    return offset
  })
  // The block excludes the output of the last layer, which is a tensor.
  const hidden = heap.allocate(offsets[last]!)
  const output = heap.tensor([batch, outputsOf(layers[last]!)])
  const input = tf.keep(tf.clone(x))
  /** The address of gradients before activations for `backwardParameters`, in the layout of `hidden`. */
  let saved: number | undefined
  /** The gradient of the output, kept from `backwardInput` to `backwardParameters`. */
  let lastGradient: Tensor | undefined

  /** Returns the address of the output of layer `i`. For -1, returns the address of the input. */
  const outputOf = (i: number) => {
    if (i < 0) return heap.addressOf(input)
    return i === last ? heap.addressOf(output) : hidden + offsets[i]!
  }
  /**
   * Returns where a product writes the gradient of a weight, whether it adds to the values there, and a
   * function that reports the gradient. A BLAS can add to earlier gradients and write to the memory of
   * the listener. The kernels write only to new tensors: they cannot address other memory, and
   * accumulating in them would round differently than adding the product afterwards.
   */
  const placeFor = (weight: Parameter, size: ProductSize, onGradient: GradientListener) => {
    const { sums, memory } = onGradient
    if (heap.usesBlas(size)) {
      const length = size[0] * size[1]
      const sum = sums?.get(weight.name)
      if (sum?.size === length && heap.isWritable(sum)) {
        return { at: heap.addressOf(sum), accumulates: true, report: () => undefined }
      }
      const place = memory?.placeOf(weight)
      if (place?.values.length === length) {
        const report = () => {
          memory!.written(weight)
        }
        return { at: heap.addressOutside(place.values), accumulates: place.adds, report }
      }
    }
    const gradient = heap.tensor(weight.shape)
    const report = () => {
      onGradient(weight, gradient)
    }
    return { at: heap.addressOf(gradient), accumulates: false, report }
  }
  /** Computes the gradients of a layer's parameters. Sums the bias gradient in double precision. */
  const report = (i: number, dz: number, onGradient: GradientListener) => {
    const { bias, weight } = layers[i]!
    const [inputs, outputs] = weight.shape as [number, number]
    const ofBias = heap.tensor(bias.shape)
    heap.kernels.sum_rows(heap.addressOf(ofBias), dz, batch, outputs)
    onGradient(bias, ofBias)
    const size = [inputs, outputs, batch] as const
    const place = placeFor(weight, size, onGradient)
    heap.multiply(place.at, { at: outputOf(i - 1), transposed: true }, { at: dz }, size, place)
    place.report()
  }
  /** Writes the gradient of the input of layer `i`. Applies the ReLU gradient of layer `i - 1`. */
  const writeInputGradient = (to: number, i: number, dz: number) => {
    const { weight } = layers[i]!
    const [inputs, outputs] = weight.shape as [number, number]
    heap.multiply(
      to,
      { at: dz },
      { at: heap.addressOf(weight.value), transposed: true },
      [batch, inputs, outputs],
      { mask: layers[i - 1]?.activation === 'relu' ? outputOf(i - 1) : 0 },
    )
  }
  /**
   * Computes the gradient before the activation of each layer, from the last layer to the first, at the
   * address that `placeOf` returns. Calls `onLayer` with each address. Returns the gradient of the input
   * if it is needed.
   */
  const backward = (
    dy: Tensor,
    placeOf: (i: number) => number,
    onLayer: (i: number, dz: number) => void,
  ) => {
    let dz = heap.addressOf(dy)
    if (layers[last]!.activation === 'relu') {
      heap.kernels.mask(placeOf(last), dz, heap.addressOf(output), dy.size)
      dz = placeOf(last)
    }
    for (let i = last; i >= 0; i--) {
      onLayer(i, dz)
      if (i === 0) break
      writeInputGradient(placeOf(i - 1), i, dz)
      dz = placeOf(i - 1)
    }
    if (!needsInputGradient) return undefined
    const gradient = heap.tensor(input.shape)
    writeInputGradient(heap.addressOf(gradient), 0, dz)
    return gradient
  }

  for (const [i, { weight, bias, activation }] of layers.entries()) {
    const [inputs, outputs] = weight.shape as [number, number]
    heap.multiply(
      outputOf(i),
      { at: outputOf(i - 1) },
      { at: heap.addressOf(weight.value) },
      [batch, outputs, inputs],
      { start: heap.addressOf(bias.value), relu: activation === 'relu' },
    )
  }
  return {
    value: output,
    backward(dy, onGradient) {
      // Alternate between two buffers: read one while writing the other.
      const size = bytesOf(Math.max(...layers.map(outputsOf)))
      const buffers = heap.allocate(2 * size)
      try {
        return backward(
          dy,
          (i) => buffers + (i % 2) * size,
          (i, dz) => {
            report(i, dz, onGradient)
          },
        )
      } finally {
        heap.free(buffers)
      }
    },

    backwardInput(dy) {
      const begin = heap.allocate(bytes)
      saved = begin
      lastGradient = tf.keep(tf.clone(dy))
      return backward(
        dy,
        (i) => begin + offsets[i]!,
        () => undefined,
      )
    },

    backwardParameters(onGradient) {
      for (let i = last; i >= 0; i--) {
        const isGiven = i === last && layers[i]!.activation === 'linear'
        report(i, isGiven ? heap.addressOf(lastGradient!) : saved! + offsets[i]!, onGradient)
      }
    },

    dispose() {
      if (saved !== undefined) heap.free(saved)
      lastGradient?.dispose()
      heap.free(hidden)
      output.dispose()
      input.dispose()
    },
  }
}

function outputsOf({ bias }: LinearLayer): number {
  return bias.shape[0]!
}
