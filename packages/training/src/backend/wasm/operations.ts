import { remembered, type Operation } from '../../model/operation.ts'
import type { OperationPasses } from '../../tfjs/backend.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { currentHeap, type WasmHeap } from './heap.ts'
import { LINE } from './memory-guard.ts'
import type { Report, Step } from './step.ts'
import { stepsOf } from './steps.ts'

/** The largest size of a block of values, unless one value is larger. */
const BLOCK = 2 ** 24

/**
 * Records operations on the wasm backend. Results are tensors; all other values are in a few blocks of
 * memory. A product also adds the bias and the residual stream, or applies a ReLU or its gradient.
 */
export function recordOperations(
  operations: readonly Operation[],
  x: Tensor,
  needsInputGradient: boolean,
): OperationPasses | undefined {
  const heap = currentHeap()!
  const plan = planFor(operations, heap, ...x.shape)
  if (plan === undefined) return undefined
  const { steps, values, gradients, places, bytes } = plan
  const last = steps.length - 1
  const tensors = owned(() => [
    tf.clone(x),
    heap.scoped([...x.shape.slice(0, -1), steps[last]!.width]),
    ...blocksFor(heap, values),
  ])
  const [input, output, ...blocks] = tensors as [Tensor, Tensor, ...Tensor[]]
  /** The address of what each step keeps. The value after the step follows. */
  const keptAt = addressesIn(heap, values, blocks)
  /** Returns the address of the value before step `i`; after the last step, that of the output. */
  const valueAt = (i: number) => {
    if (i === 0) return heap.addressOf(input)
    return i > last ? heap.addressOf(output) : keptAt[i - 1]! + bytesOf(steps[i - 1]!.kept)
  }
  const dispose = () => {
    tf.dispose(tensors)
  }
  const reports: Report[] = []

  /**
   * Computes the gradient of the value before each step, from the last to the first, at the addresses `at`.
   * Calls `take` with functions that report the gradients of parameters. Returns the gradient of the input if
   * it is needed.
   */
  const backward = (dy: Tensor, at: number[], take: (report: Report) => void) => {
    const dx = needsInputGradient ? heap.tensor(input.shape) : undefined
    if (dx !== undefined) at[0] = heap.addressOf(dx)
    let dz = heap.addressOf(dy)
    try {
      for (let i = last; i >= 0; i--) {
        const step = steps[i]!
        const isMasked = step.isRectified === true && steps[i + 1]?.masks === true
        if (step.beforeActivation !== undefined && !isMasked) {
          step.beforeActivation(at[i + 1]!, dz, valueAt(i + 1), keptAt[i]!)
          dz = at[i + 1]!
        }
        at[i + 1] = dz
        take(
          step.backward(at[i]!, dz, valueAt(i), keptAt[i]!, {
            isNeeded: i > 0 || needsInputGradient,
            residual: step.end === undefined ? 0 : at[step.end]!,
            mask: steps[i - 1]?.isRectified === true ? valueAt(i) : 0,
          }),
        )
        dz = at[i]!
      }
      return dx
    } catch (error) {
      dx?.dispose()
      throw error
    }
  }

  try {
    for (const [i, step] of steps.entries()) {
      const residual = step.begin === undefined ? 0 : valueAt(step.begin)
      step.forward(valueAt(i + 1), valueAt(i), keptAt[i]!, residual)
    }
  } catch (error) {
    dispose()
    throw error
  }
  return {
    value: output,

    backward(dy, onGradient) {
      const begin = heap.allocate(bytes)
      const at = places.map((place) => begin + place)
      try {
        return backward(dy, at, (report) => {
          report(onGradient)
        })
      } finally {
        heap.free(begin)
      }
    },

    backwardInput(dy) {
      const saved = owned(() => [tf.clone(dy), ...blocksFor(heap, gradients)])
      tensors.push(...saved)
      return backward(dy, addressesIn(heap, gradients, saved.slice(1)), (report) => {
        reports.push(report)
      })
    },

    backwardParameters(onGradient) {
      for (const report of reports) report(onGradient)
    },

    dispose,
  }
}

/** Returns tensors that outlive the open tf.tidy. If one cannot be made, frees the others. */
function owned(make: () => Tensor[]): Tensor[] {
  return tf.tidy(() => make().map((tensor) => tf.keep(tensor)))
}

const planFor = remembered(
  (operations: readonly Operation[], heap: WasmHeap, ...shape: readonly number[]) => {
    const steps = stepsOf(operations, heap, shape)
    if (steps === undefined) return undefined
    const rows = sizeOf(shape.slice(0, -1))
    const last = steps.length - 1
    /** The bytes of the value before each step, then of the output. */
    const sizes = [shape.at(-1)!, ...steps.map(({ width }) => width)].map((width) =>
      bytesOf(rows * width),
    )
    // A product writes the gradient of the input only to a tensor, if it is needed. The gradient of the
    // output is only copied before an activation.
    const isElsewhere = (i: number) =>
      i === 0 ? steps[0]!.masks === true : i > last && steps[last]!.beforeActivation === undefined
    /** The bytes of their gradients. */
    const gradients = sizes.map((size, i) => (isElsewhere(i) ? 0 : size))
    const rooms = roomsFor(steps)
    /** The bytes of each room. */
    const bytes = [0, 1, 2, 3].map((room) =>
      Math.max(0, ...gradients.filter((_, i) => rooms[i] === room)),
    )
    return {
      steps,
      /** For each step, the bytes of what it keeps, and of the value after it, except the output. */
      values: layoutOf(steps.map(({ kept }, i) => bytesOf(kept) + (i < last ? sizes[i + 1]! : 0))),
      gradients: layoutOf(gradients),
      /** The offset of each gradient in the memory of `backward`. */
      places: rooms.map((room) => sum(bytes.slice(0, room))),
      /** The bytes of that memory. */
      bytes: sum(bytes),
    }
  },
)

/**
 * Returns which of four rooms has the gradient of the value before each step, and of the output, in `backward`.
 * The gradients of a residual stream are added in one room. All others alternate between two rooms: one is
 * read while the other is written. Two streams may be one step apart, so they alternate between rooms, too.
 */
function roomsFor(steps: readonly Step[]): number[] {
  let stream = 2
  return [...steps, undefined].map((step, i) => {
    const isEnd = steps[i - 1]?.begin !== undefined
    if (step?.end === undefined) return isEnd ? stream : i % 2
    if (!isEnd) stream = 5 - stream
    return stream
  })
}

/** Returns the bytes for a number of floats, so that the next value begins at a cache line. */
function bytesOf(count: number): number {
  return LINE * Math.ceil((4 * count) / LINE)
}

interface Layout {
  /** The number of floats of each block. */
  readonly blocks: readonly number[]
  /** The block of each value, and its offset in bytes. */
  readonly places: readonly (readonly [block: number, offset: number])[]
}

/** Lays out values of the given sizes in blocks. */
function layoutOf(sizes: readonly number[]): Layout {
  const blocks: number[] = []
  let end = Infinity
  const places = sizes.map((size) => {
    if (end + size > BLOCK) {
      blocks.push(0)
      end = 0
    }
    const place = [blocks.length - 1, end] as const
    end += size
    blocks[blocks.length - 1] = end / 4
    return place
  })
  return { blocks, places }
}

/** Creates the blocks of a layout as tensors, so that tf.memory counts them. */
function blocksFor(heap: WasmHeap, { blocks }: Layout): Tensor[] {
  return blocks.map((size) => heap.scoped([size]))
}

/** Returns the addresses of values in the blocks of their layout. */
function addressesIn(heap: WasmHeap, { places }: Layout, blocks: readonly Tensor[]): number[] {
  const addresses = blocks.map((block) => heap.addressOf(block))
  return places.map(([block, offset]) => addresses[block]! + offset)
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
