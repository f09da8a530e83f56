import { tsrError } from '@tsrun/core'
import { record } from '../autograd/record.ts'
import { isTapeActive } from '../autograd/tape.ts'
import { currentBackend } from '../backend/current.ts'
import { operationsOf, type Module } from '../model/module.ts'
import { parametersIn, type Operation } from '../model/operation.ts'
import { checkedRecording, type Recording, type RecordOptions } from '../model/recording.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { convolveAndPool } from './convolution.ts'

/** Applies layers one after the other. */
export function applyLayers(layers: readonly Module[], x: Tensor): Tensor {
  return tf.tidy(() => {
    let h = x
    for (let i = 0; i < layers.length; i++) {
      const pooled = convolveAndPool(layers[i]!, layers[i + 1], h)
      h = pooled ?? layers[i]!.forward(h)
      if (pooled !== undefined) i++
    }
    return h
  })
}

/**
 * Records a module that applies layers one after the other. Where the backend can, it records the last
 * layers, whose operations are known, without the tape. The parameters of these layers must keep their
 * values until the backward pass is done.
 */
export function recordLayers(
  module: Module,
  layers: readonly Module[],
  x: Tensor,
  options: RecordOptions,
): Recording {
  const onTape = () => record((input) => module.forward(input), x, module.parameters, options)
  if (currentBackend().recordOperations === undefined || isTapeActive()) return onTape()
  const known = layers.map(operationsOf)
  const count = known.lastIndexOf(undefined) + 1
  const operations = known.slice(count).flatMap((part) => part!)
  const before = layers.slice(0, count)
  const inputs = [...new Set(before.flatMap(({ parameters }) => parameters))]
  // A recording reports each gradient once, so no parameter may belong to two parts.
  const all = [...inputs, ...parametersIn(operations)]
  if (operations.length === 0 || new Set(all).size < all.length) return onTape()
  if (count === 0) return recordKnown(operations, x, options.needsInputGradient) ?? onTape()

  const first = record((input) => applyLayers(before, input), x, inputs, options)
  const { value } = first
  const needsGradient = options.needsInputGradient || inputs.length > 0
  const second =
    recordKnown(operations, value, needsGradient) ??
    record((input) => applyLayers(layers.slice(count), input), value, parametersIn(operations), {
      needsInputGradient: needsGradient,
    })
  return joined(first, second, needsGradient)
}

/** Records operations without the tape; undefined if that is not possible. */
function recordKnown(
  operations: readonly Operation[],
  x: Tensor,
  needsInputGradient: boolean,
): Required<Recording> | undefined {
  const isPossible =
    !x.isDisposed && x.dtype === 'float32' && x.size > 0 && outputWidth(operations, x.shape) !== undefined
  const passes = isPossible
    ? currentBackend().recordOperations!(operations, x, needsInputGradient)
    : undefined
  if (passes === undefined) return undefined
  const parameters = parametersIn(operations)
  const values = parameters.map(({ value }) => value)
  return checkedRecording(passes.value, passes, () => {
    const stale = parameters.find(({ value }, i) => value !== values[i])
    if (stale !== undefined) throw tsrError('ERR_TSR_STALE_RECORDING', { parameter: stale.name })
  })
}

/** The length of the last axis after the operations; undefined if they do not fit a shape. */
function outputWidth(operations: readonly Operation[], shape: readonly number[]): number | undefined {
  let width = shape.length > 1 ? shape.at(-1) : undefined
  for (const operation of operations) {
    if (width === undefined) return undefined
    width = widthAfter(operation, [...shape.slice(0, -1), width])
  }
  return width
}

function widthAfter(operation: Operation, shape: readonly number[]): number | undefined {
  const width = shape.at(-1)!
  const unless = (isWrong: boolean, next: number) => (isWrong ? undefined : next)
  switch (operation.type) {
    case 'linear':
      return unless(operation.weight.shape[0] !== width, operation.bias.value.size)
    case 'head':
      return unless(operation.weight.shape[1] !== width, operation.weight.shape[0]!)
    case 'normalize':
      return unless(operation.scale.shape[0] !== width, width)
    case 'gate':
      return width
    case 'attention':
      return unless(shape.length !== 3 || width % (3 * operation.size) !== 0, width / 3)
    case 'residual':
      return unless(outputWidth(operation.operations, shape) !== width, width)
  }
}

/**
 * A recording of two parts, of which the second takes the output of the first.
 *
 * @param hasGradient - whether the first part needs the gradient of its output
 */
function joined(
  first: Required<Recording>,
  second: Required<Recording>,
  hasGradient: boolean,
): Required<Recording> {
  /** Continues with the gradient of the second part's input, if there is one. */
  const through = (gradient: Tensor | undefined, next: (dy: Tensor) => Tensor | undefined) => {
    try {
      return gradient && next(gradient)
    } finally {
      gradient?.dispose()
    }
  }
  return checkedRecording(second.value, {
    backward: (dy, onGradient) =>
      through(second.backward(dy, onGradient), (between) => first.backward(between, onGradient)),
    backwardInput: (dy) =>
      through(second.backwardInput(dy), (between) => first.backwardInput(between)),
    backwardParameters(onGradient) {
      second.backwardParameters(onGradient)
      if (hasGradient) first.backwardParameters(onGradient)
    },
    dispose() {
      second.dispose()
      first.dispose()
    },
  })
}
