import type { GateFactors, Normalization, Operation } from '../../model/operation.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener } from '../../model/recording.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { attentionStep } from './attention.ts'
import type { ProductSize, WasmHeap } from './heap.ts'
import { linearPasses } from './linear.ts'
import type { Step } from './step.ts'

/**
 * Returns the steps of operations on rows of a shape; undefined if they need the tape.
 *
 * @param first - the index of the first step
 */
export function stepsOf(
  operations: readonly Operation[],
  heap: WasmHeap,
  shape: readonly number[],
  first = 0,
): Step[] | undefined {
  const axes = shape.slice(0, -1)
  const rows = sizeOf(axes)
  const steps: Step[] = []
  for (const [i, operation] of operations.entries()) {
    const width = steps.at(-1)?.width ?? shape.at(-1)!
    switch (operation.type) {
      case 'linear': {
        const { weight, bias, activation } = operation
        const next = operations[i + 1]
        const gate = next?.type === 'gate' ? next : undefined
        steps.push(
          linearStep(heap, rows, { weight, bias, isRectified: activation === 'relu', gate }),
        )
        break
      }
      case 'gate': {
        const before = operations[i - 1]
        if (before?.type !== 'linear' || before.activation !== 'linear') return undefined
        break
      }
      case 'head':
        steps.push(linearStep(heap, rows, { weight: operation.weight, isTransposed: true }))
        break
      case 'normalize':
        steps.push(normalizeStep(heap, rows, operation))
        break
      case 'attention':
        steps.push(attentionStep(heap, [...axes, width], operation.size))
        break
      case 'residual': {
        const branch = branchOf(operation.operations, heap, [...axes, width], first + steps.length)
        if (branch === undefined) return undefined
        steps.push(...branch)
      }
    }
  }
  return steps
}

function branchOf(
  operations: readonly Operation[],
  heap: WasmHeap,
  shape: readonly number[],
  begin: number,
): Step[] | undefined {
  const last = operations.at(-1)
  if (operations[0]?.type !== 'normalize' || last?.type !== 'linear') return undefined
  const isFlat = operations.every(({ type }) => type !== 'residual')
  const steps =
    isFlat && last.activation === 'linear' ? stepsOf(operations, heap, shape, begin) : undefined
  if (steps === undefined) return undefined
  steps[0]!.end = begin + steps.length
  steps.at(-1)!.begin = begin
  return steps
}

interface Product {
  readonly weight: Parameter
  readonly bias?: Parameter
  /** Whether the weight is W' [outputs, inputs] in memory; default false. */
  readonly isTransposed?: boolean
  /** Whether there is a ReLU; default false. */
  readonly isRectified?: boolean
  readonly gate?: GateFactors | undefined
}

/** x W + b, then a ReLU or a gate. */
function linearStep(heap: WasmHeap, rows: number, product: Product): Step {
  const { weight, bias, isTransposed = false, isRectified = false, gate } = product
  const outputs = isTransposed ? weight.shape[0]! : sizeOf(bias!.shape)
  const inputs = sizeOf(weight.shape) / outputs
  const size = [rows, outputs, inputs] as const
  const count = rows * outputs
  const layer = linearPasses(heap, size, isTransposed)
  return {
    width: outputs,
    kept: gate === undefined ? 0 : count,
    isRectified,
    masks: true,
    forward(y, x, kept, residual) {
      const start = bias === undefined ? 0 : heap.addressOf(bias.value)
      // After a product of a BLAS, another pass over the result adds the bias. A gate is such a pass.
      const isLate = gate !== undefined && heap.usesBlas(size)
      const options = { start: isLate ? 0 : start, relu: isRectified, residual }
      layer.forward(y, x, heap.addressOf(weight.value), options)
      if (gate === undefined) return
      heap.kernels.gate(y, kept, y, rows, outputs, isLate ? start : 0, gate.linear, gate.cubic)
    },
    beforeActivation:
      isRectified || gate !== undefined
        ? (dz, dy, y, kept) => {
            if (isRectified) heap.kernels.mask(dz, dy, y, count)
            else heap.kernels.multiply(dz, dy, kept, count)
          }
        : undefined,
    backward(dx, dz, x, _, { isNeeded, mask }) {
      if (isNeeded) layer.input(dx, dz, heap.addressOf(weight.value), { mask })
      return (onGradient) => {
        if (bias !== undefined) {
          const gradient = heap.tensor(bias.shape)
          layer.bias(heap.addressOf(gradient), dz)
          onGradient(bias, gradient)
        }
        const place = placeFor(heap, weight, layer.sizeOfWeight, onGradient)
        layer.weight(place.at, dz, x, place)
        place.report()
      }
    },
  }
}

/**
 * Returns where a product writes the gradient of a weight, whether it adds to the values there, and a
 * function that reports the gradient. A BLAS can add to earlier gradients and write to the memory of the
 * listener. The kernels write only to new tensors: they cannot address other memory, and accumulating in
 * them would round differently than adding the product afterwards.
 */
function placeFor(
  heap: WasmHeap,
  weight: Parameter,
  size: ProductSize,
  onGradient: GradientListener,
) {
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

function normalizeStep(
  heap: WasmHeap,
  rows: number,
  { scale, shift, epsilon }: Normalization,
): Step {
  const [width] = scale.shape as [number]
  const addressOf = (parameter: Parameter | undefined) =>
    parameter === undefined ? 0 : heap.addressOf(parameter.value)
  const report = (onGradient: GradientListener, parameter: Parameter, at: number) => {
    const gradient = heap.tensor(parameter.shape)
    heap.kernels.scale(heap.addressOf(gradient), at, width, 1)
    onGradient(parameter, gradient)
  }
  return {
    width,
    // The statistics, then the gradients of the parameters.
    kept: 3 * rows + 2 * width,
    forward(y, x, kept) {
      heap.kernels.normalize(y, kept, x, addressOf(scale), addressOf(shift), rows, width, epsilon)
    },
    backward(dx, dy, x, kept, { residual }) {
      const ofScale = kept + 12 * rows
      const ofShift = ofScale + 4 * width
      heap.kernels.normalize_gradients(
        dx,
        ofScale,
        shift === undefined ? 0 : ofShift,
        dy,
        x,
        addressOf(scale),
        kept,
        heap.temporary(16 * width),
        rows,
        width,
        residual,
      )
      return (onGradient) => {
        if (shift !== undefined) report(onGradient, shift, ofShift)
        report(onGradient, scale, ofScale)
      }
    },
  }
}
