import { remembered, type Operation } from '../../model/operation.ts'
import type { OperationPasses } from '../../tfjs/backend.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { currentHeap, type WasmHeap } from './heap.ts'
import { stepsOf, type Report, type Step } from './steps.ts'

/** The number of bytes to which the places of values are rounded up: a cache line. */
const LINE = 64

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
  const { steps, sizes, places } = plan
  const last = steps.length - 1
  const input = tf.keep(tf.clone(x))
  const output = heap.tensor([...x.shape.slice(0, -1), steps[last]!.width])
  const values = allocate(heap, places)
  /** Returns the address of the value before step `i`; after the last step, that of the output. */
  const valueAt = (i: number) => {
    if (i === 0) return heap.addressOf(input)
    return i > last ? heap.addressOf(output) : values.at[i - 1]! + bytesOf(steps[i - 1]!.kept)
  }
  /** The memory of all gradients, from `backwardInput` on. */
  let gradients: ReturnType<typeof allocate> | undefined
  /** The gradient of the output, and the reports, from `backwardInput` to `backwardParameters`. */
  let outputGradient: Tensor | undefined
  let reports: Report[] = []

  /**
   * Computes the gradient of the value before each step, from the last to the first, at the address that
   * `placeOf` returns. Calls `take` with functions that report the gradients of parameters. Returns the
   * gradient of the input if it is needed.
   */
  const backward = (dy: Tensor, placeOf: (i: number) => number, take: (report: Report) => void) => {
    const dx = needsInputGradient ? heap.tensor(input.shape) : undefined
    const at = sizes.map((_, i) => placeOf(i))
    if (dx !== undefined) at[0] = heap.addressOf(dx)
    let dz = heap.addressOf(dy)
    for (let i = last; i >= 0; i--) {
      const step = steps[i]!
      const isMasked = step.isRectified === true && steps[i + 1]?.masks === true
      if (step.beforeActivation !== undefined && !isMasked) {
        dz = step.beforeActivation(at[i + 1]!, dz, valueAt(i + 1), values.at[i]!)
      }
      at[i + 1] = dz
      take(
        step.backward(at[i]!, dz, valueAt(i), values.at[i]!, {
          isNeeded: i > 0 || needsInputGradient,
          residual: step.end === undefined ? 0 : at[step.end]!,
          mask: steps[i - 1]?.isRectified === true ? valueAt(i) : 0,
        }),
      )
      dz = at[i]!
    }
    return dx
  }

  for (const [i, step] of steps.entries()) {
    const residual = step.begin === undefined ? 0 : valueAt(step.begin)
    step.forward(valueAt(i + 1), valueAt(i), values.at[i]!, residual)
  }
  return {
    value: output,

    backward(dy, onGradient) {
      const size = Math.max(...sizes)
      const begin = heap.allocate(3 * size)
      try {
        return backward(
          dy,
          // The gradients of the residual stream are added in one place. All others alternate between two
          // places: one is read while the other is written.
          (i) => begin + (isStream(steps, i) ? 2 : i % 2) * size,
          (report) => {
            report(onGradient)
          },
        )
      } finally {
        heap.free(begin)
      }
    },

    backwardInput(dy) {
      const { at } = (gradients = allocate(heap, sizes))
      outputGradient = tf.keep(tf.clone(dy))
      return backward(
        outputGradient,
        (i) => at[i]!,
        (report) => reports.push(report),
      )
    },

    backwardParameters(onGradient) {
      const waiting = reports
      reports = []
      for (const report of waiting) report(onGradient)
    },

    dispose() {
      for (const report of reports) {
        report((_, gradient) => {
          gradient.dispose()
        })
      }
      tf.dispose([input, output, ...values.blocks, ...(gradients?.blocks ?? [])])
      outputGradient?.dispose()
    },
  }
}

const planFor = remembered(
  (operations: readonly Operation[], heap: WasmHeap, ...shape: readonly number[]) => {
    const steps = stepsOf(operations, heap, shape)
    if (steps === undefined) return undefined
    const rows = sizeOf(shape.slice(0, -1))
    /** The bytes of the value before each step, then of the output. */
    const sizes = [shape.at(-1)!, ...steps.map(({ width }) => width)].map((width) =>
      bytesOf(rows * width),
    )
    /** For each step, the bytes of what it keeps, and of the value after it, except the output. */
    const places = steps.map(
      ({ kept }, i) => bytesOf(kept) + (i < steps.length - 1 ? sizes[i + 1]! : 0),
    )
    return { steps, sizes, places }
  },
)

/** Whether the value before step `i` is one that a residual branch begins with or ends in. */
function isStream(steps: readonly Step[], i: number): boolean {
  return steps[i]?.end !== undefined || steps[i - 1]?.begin !== undefined
}

/** Returns the bytes for a number of floats. */
function bytesOf(count: number): number {
  return LINE * Math.ceil((4 * count) / LINE)
}

/** Allocates memory of the given sizes, in blocks that are tensors, so that tf.memory counts them. */
function allocate(heap: WasmHeap, sizes: readonly number[]) {
  const blocks: Tensor[] = []
  const at: number[] = []
  while (at.length < sizes.length) {
    let end = at.length
    let total = 0
    do total += sizes[end++]!
    while (end < sizes.length && total + sizes[end]! <= BLOCK)
    const block = heap.tensor([total / 4])
    let address = heap.addressOf(block)
    while (at.length < end) {
      at.push(address)
      address += sizes[at.length - 1]!
    }
    blocks.push(block)
  }
  return { blocks, at }
}
