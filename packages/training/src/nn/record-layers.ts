import { tsrError } from '@tsrun/core'
import { sharedGradients } from '../autograd/chain.ts'
import { checkParameter, record } from '../autograd/record.ts'
import { isTapeActive } from '../autograd/tape.ts'
import { currentBackend } from '../backend/current.ts'
import { operationsOf, type Module } from '../model/module.ts'
import { joinedOperations, parametersIn, remembered, type Operation } from '../model/operation.ts'
import type { Parameter } from '../model/parameter.ts'
import {
  checkAlive,
  checkedRecording,
  type GradientListener,
  type Recording,
  type RecordOptions,
} from '../model/recording.ts'
import type { OperationPasses } from '../tfjs/backend.ts'
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
  const { needsInputGradient } = options
  const onTape = () => record((input) => module.forward(input), x, module.parameters, options)
  const known = layers.map(operationsOf)
  const count = known.lastIndexOf(undefined) + 1
  const operations = joinedOperations(known.slice(count))
  if (operations === undefined) return onTape()
  const parameters = parametersIn(operations)
  const before = layers.slice(0, count)
  const others = [...new Set(before.flatMap(({ parameters }) => parameters))]
  // Operations report one gradient for each of their parameters, also if a subclass of the module leaves it
  // out of its `parameters`.
  const total = parameters.length + others.filter((other) => !parameters.includes(other)).length
  if (total !== module.parameters.length || !areDistinct(parameters)) return onTape()
  const canRecord = currentBackend().recordOperations !== undefined && !isTapeActive()
  const recordRest = (input: Tensor, needsInputGradient: boolean) =>
    recordKnown(operations, parameters, input, needsInputGradient, count === 0)
  const inParts = () => {
    const first = record((input) => applyLayers(before, input), x, others, options)
    const needsGradient = needsInputGradient || others.length > 0
    try {
      const second =
        recordRest(first.value, needsGradient) ??
        record((input) => applyLayers(layers.slice(count), input), first.value, parameters, {
          needsInputGradient: needsGradient,
        })
      return joined({ parameters: others, passes: first }, { parameters, passes: second })
    } catch (error) {
      first.dispose()
      throw error
    }
  }
  const whole = () => recordRest(x, needsInputGradient) ?? onTape()
  const passes = canRecord ? (count > 0 ? inParts() : whole()) : onTape()
  const values = parameters.map(({ value }) => value)
  return checkedRecording(passes.value, passes, () => {
    const stale = parameters.find(({ value }, i) => value !== values[i] || value.isDisposed)
    if (stale !== undefined) throw tsrError('ERR_TSR_STALE_RECORDING', { parameter: stale.name })
  })
}

const areDistinct = remembered(
  (parameters: readonly Parameter[]) => new Set(parameters).size === parameters.length,
)

/** Records operations without the tape; undefined if that is not possible. */
function recordKnown(
  operations: readonly Operation[],
  parameters: readonly Parameter[],
  x: Tensor,
  needsInputGradient: boolean,
  isWhole: boolean,
): OperationPasses | undefined {
  const { shape, dtype, size, rank } = x
  const width = rank > 1 ? shape.at(-1) : undefined
  if (dtype !== 'float32' || size === 0 || widthAfter(operations, width, rank) === undefined) {
    return undefined
  }
  checkAlive('x', x)
  for (const parameter of parameters) checkParameter(parameter)
  return currentBackend().recordOperations!(operations, x, needsInputGradient, isWhole)
}

/** The length of the last axis after the operations; undefined if they do not fit the input. */
function widthAfter(
  operations: readonly Operation[],
  width: number | undefined,
  rank: number,
): number | undefined {
  let next = width
  for (const operation of operations) if (next !== undefined) next = after(operation, next, rank)
  return next
}

function after(operation: Operation, width: number, rank: number): number | undefined {
  switch (operation.type) {
    case 'linear':
      return operation.weight.shape[0] === width ? operation.bias.value.size : undefined
    case 'head':
      return operation.weight.shape[1] === width ? operation.weight.shape[0] : undefined
    case 'normalize':
      return operation.scale.shape[0] === width ? width : undefined
    case 'gate':
      return width
    case 'attention':
      return rank === 3 && width % (3 * operation.size) === 0 ? width / 3 : undefined
    case 'residual':
      return widthAfter(operation.operations, width, rank) === width ? width : undefined
  }
}

interface Part {
  readonly parameters: readonly Parameter[]
  readonly passes: OperationPasses
}

/** The passes of two parts. The second takes the output of the first. */
function joined(first: Part, second: Part): OperationPasses {
  /** Runs both parts, and reports the gradient of a parameter of both once. */
  const report = <T>(
    onGradient: GradientListener,
    run: (gradients: ReturnType<typeof sharedGradients>) => T,
  ) => {
    const gradients = sharedGradients([first, second], onGradient)
    try {
      return run(gradients)
    } finally {
      gradients.dispose()
    }
  }
  /** Continues with the gradient of the second part's input, if there is one. */
  const through = (gradient: Tensor | undefined, next: (dy: Tensor) => Tensor | undefined) => {
    try {
      return gradient && next(gradient)
    } finally {
      gradient?.dispose()
    }
  }
  return {
    value: second.passes.value,
    backward: (dy, onGradient) =>
      report(onGradient, (gradients) => {
        const between = second.passes.backward(dy, gradients.listener)
        gradients.finish(second)
        return through(between, (dy) => {
          const dx = first.passes.backward(dy, gradients.listener)
          gradients.finish(first)
          return dx
        })
      }),
    backwardInput: (dy) =>
      through(second.passes.backwardInput(dy), (between) => first.passes.backwardInput(between)),
    backwardParameters(onGradient) {
      report(onGradient, (gradients) => {
        second.passes.backwardParameters(gradients.listener)
        gradients.finish(second)
        if (first.parameters.length > 0) first.passes.backwardParameters(gradients.listener)
        gradients.finish(first)
      })
    },
    dispose() {
      second.passes.dispose()
      first.passes.dispose()
    },
  }
}
