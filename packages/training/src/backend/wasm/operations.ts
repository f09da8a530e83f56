import type { Operation } from '../../model/operation.ts'
import type { OperationPasses } from '../../tfjs/backend.ts'
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
  const steps = stepsOf(operations, x.shape)
  if (steps === undefined) return undefined
  const last = steps.length - 1
  const rows = x.size / x.shape.at(-1)!
  const input = tf.keep(tf.clone(x))
  const output = heap.tensor([...x.shape.slice(0, -1), steps[last]!.width])
  /** The bytes of the value before each step, then of the output. */
  const sizes = [x.size, ...steps.map(({ width }) => rows * width)].map(bytesOf)
  const kept = steps.map((step) => bytesOf(step.kept))
  const values = allocate(
    heap,
    steps.map((_, i) => (i < last ? sizes[i + 1]! : 0) + kept[i]!),
  )
  /** Returns the address of the value before step `i`; after the last step, that of the output. */
  const valueAt = (i: number) => {
    if (i === 0) return heap.addressOf(input)
    return i > last ? heap.addressOf(output) : values.at[i - 1]! + kept[i - 1]!
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
        step.beforeActivation(at[i + 1]!, dz, valueAt(i + 1), values.at[i]!)
      } else if (i === last) at[i + 1] = dz
      take(
        step.backward(at[i]!, at[i + 1]!, valueAt(i), values.at[i]!, {
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
      for (const report of reports) report((_, gradient) => gradient.dispose())
      tf.dispose([input, output, ...values.blocks, ...(gradients?.blocks ?? [])])
      outputGradient?.dispose()
    },
  }
}

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
