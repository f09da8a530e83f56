import { createLogger } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Handle } from './binding-kernels.ts'
import { currentEager } from './eager.ts'
import { createTrace, placeOf, type TracedFunction } from './trace.ts'

/** The largest number of functions of a computation, one for each combination of input shapes. */
const MOST_FUNCTIONS = 8

interface Computation {
  readonly traced: TracedFunction
  /** The indices of the inputs that the function takes. */
  readonly places: readonly number[]
}

/**
 * TensorFlow functions by name of the computation and shapes of its inputs; undefined after the
 * first run.
 */
const computations = new Map<string, Map<string, Computation | undefined>>()
const untraceable = new Set<string>()

/** Runs a computation as a TensorFlow function from the third run on. */
export function repeat(
  name: string,
  inputs: readonly Tensor[],
  run: () => Tensor[],
  numbers: readonly number[] = [],
): Tensor[] | undefined {
  const eager = currentEager()!
  if (!eager.hasFunctions || untraceable.has(name)) return undefined
  const functions = computations.get(name) ?? new Map<string, Computation | undefined>()
  computations.set(name, functions)
  const shapes = [...inputs.map(({ shape }) => shape.join()), ...numbers].join(';')
  const known = functions.get(shapes)
  if (known !== undefined) {
    const bits: Handle[] = []
    try {
      const { traced, places } = known
      const given = places.map((place) => {
        const input = inputs[place]!
        if (!eager.takesBits(input)) return eager.handleOf(input)
        bits.push(eager.bitsOf(input))
        return bits.at(-1)!
      })
      const results = eager.call(traced.definition, given)
      return results.map((handle, i) => eager.take(handle, traced.shapes[i]!))
    } finally {
      for (const handle of bits) eager.free(handle)
    }
  }
  if (!functions.has(shapes)) {
    if (functions.size < MOST_FUNCTIONS) functions.set(shapes, undefined)
    return undefined
  }
  const trace = createTrace(eager)
  for (const input of inputs) trace.addArgument(input)
  const outputs = trace.run(run)
  try {
    const traced = trace.defineAll(outputs)
    functions.set(shapes, { traced, places: traced.inputs.map(placeOf) })
  } catch (error) {
    untraceable.add(name)
    const { message } = error as Error
    createLogger('training').debug({ reason: message }, `${name} does not become a function`)
  }
  return outputs
}
