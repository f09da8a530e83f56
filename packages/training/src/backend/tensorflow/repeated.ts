import { createLogger } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { currentEager } from './eager.ts'
import { placeOf, Trace, type TracedFunction } from './trace.ts'

/** The most functions of a computation, which has one for each set of shapes. */
const MOST_FUNCTIONS = 8

/** By name of the computation, then by the shapes of its inputs; undefined after the first run. */
const computations = new Map<string, Map<string, TracedFunction | undefined>>()
const untraceable = new Set<string>()

/** Runs a computation as a function of TensorFlow, from the third time on. */
export function repeat(
  name: string,
  inputs: readonly Tensor[],
  run: () => Tensor[],
): Tensor[] | undefined {
  const eager = currentEager()!
  if (!eager.hasFunctions || untraceable.has(name)) return undefined
  const functions = computations.get(name) ?? new Map<string, TracedFunction | undefined>()
  computations.set(name, functions)
  const shapes = inputs.map(({ shape }) => shape.join()).join(';')
  const known = functions.get(shapes)
  if (known !== undefined) {
    const given = known.inputs.map((value) => eager.handleOf(inputs[placeOf(value)]!))
    const results = eager.call(known.name, given, known.outputs.length)
    return results.map(({ id, shape }) => eager.take(id, shape))
  }
  if (!functions.has(shapes)) {
    if (functions.size < MOST_FUNCTIONS) functions.set(shapes, undefined)
    return undefined
  }
  const trace = new Trace(eager)
  for (const input of inputs) trace.addArgument(input)
  const outputs = trace.run(run)
  try {
    functions.set(shapes, trace.defineAll(outputs))
  } catch (error) {
    untraceable.add(name)
    const { message } = error as Error
    createLogger('training').debug({ reason: message }, `${name} does not become a function`)
  }
  return outputs
}
