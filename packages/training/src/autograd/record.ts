import { argumentError } from '@tsrun/core'
import { timeSpan } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { currentBackend, onHostBackend } from '../backend/current.ts'
import { fitsForward, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { currentPass, inPass } from '../model/pass.ts'
import {
  checkAlive,
  checkedRecording,
  type LocalSegment,
  type Recording,
  type RecordOptions,
} from '../model/recording.ts'
import { registerGradients } from '../tfjs/register-gradients.ts'
import { testTape } from './self-test.ts'
import { captureTape, disposeTape, isTapeActive, ownedResults } from './tape.ts'
import { dependentNodes, tapePasses } from './walk.ts'

/**
 * Runs `forward(x)` on the gradient tape of TensorFlow.js and keeps what the backward pass needs. The
 * first call in a process registers the gradient functions of TensorFlow.js and tests the tape.
 *
 * @param parameters - the parameters whose gradients are requested, with the values that `forward` reads
 * @throws ERR_TSR_ARGUMENT for disposed tensors, and for a tf.Variable as the value of a parameter
 * @throws ERR_TSR_NESTED_RECORDING inside another recording or tf.grads
 * @throws ERR_TSR_AUTOGRAD when the tape of this version of TensorFlow.js does not work as expected
 */
export function record(
  forward: (x: Tensor) => Tensor,
  x: Tensor,
  parameters: readonly Parameter[],
  options: RecordOptions,
): Required<Recording> {
  checkAlive('x', x)
  for (const parameter of parameters) checkParameter(parameter)
  prepareTape()
  return recordOnTape(forward, x, parameters, options)
}

let isPrepared = false

/**
 * Registers gradients and tests the tape. Runs before recordings rather than at import, because many
 * processes never record, and a later import of `@tensorflow/tfjs` replaces the gradients.
 */
function prepareTape(): void {
  registerGradients()
  if (isPrepared) return
  onHostBackend(() => {
    testTape(recordOnTape)
  })
  isPrepared = true
}

/** Records on the tape like `record`, but does not prepare TensorFlow.js first. */
export function recordOnTape(
  forward: (x: Tensor) => Tensor,
  x: Tensor,
  parameters: readonly Parameter[],
  { needsInputGradient }: RecordOptions,
): Required<Recording> {
  const { value, tape } = captureTape(() => forward(x))
  const wanted = new Map(parameters.map((parameter) => [parameter.value.id, parameter]))
  const sources = new Set(wanted.keys())
  if (needsInputGradient) sources.add(x.id)
  const { nodes, rest } = dependentNodes(tape, sources, value)
  disposeTape(rest)
  return checkedRecording(value, tapePasses(nodes, { value, x, wanted, needsInputGradient }))
}

/**
 * Records `module.forward(x)`: with `module.record` if the module has it, otherwise on the tape.
 *
 * @throws the errors of `record`; ERR_TSR_BACKEND when several ranks share the module and the backend
 *   cannot wait for them inside a pass: see `recordSegments`
 */
export function recordModule(
  module: Module,
  x: Tensor,
  { recorder, ...options }: RecordOptions,
): Recording {
  checkAlive('x', x)
  const onTape = (input: Tensor) =>
    record((given) => module.forward(given), input, module.parameters, options)
  // Do not repeat operations while a TensorFlow.js tape is active, because it would not record them.
  const repeat = isTapeActive() ? undefined : currentBackend().repeatPass
  const recording = timeSpan(
    recorder,
    'F',
    {},
    () =>
      repeat?.(module, x, options.needsInputGradient, onTape) ??
      (fitsForward(module, 'record') ? module.record!(x, options) : onTape(x)),
  )
  if (recorder === undefined) return recording
  const backward = recording.backward.bind(recording)
  recording.backward = (...pass) => timeSpan(recorder, 'B', {}, () => backward(...pass))
  return recording
}

/**
 * A forward pass with activation checkpointing (Chen et al., 2016): its recording can be freed, and is
 * recomputed before the backward pass. The gradients have the same bits.
 */
export class RepeatableRecording {
  readonly #segment: LocalSegment
  readonly #input: Tensor
  readonly #options: RecordOptions
  /** The pass in which the recomputation runs, so that dropout draws the same masks. */
  readonly #pass = currentPass()
  #recording: Recording | undefined
  #isRepeated = false

  /** @param input - the input; do not dispose it as long as `recording` is used */
  constructor(segment: LocalSegment, input: Tensor, options: RecordOptions) {
    this.#segment = segment
    this.#input = input
    this.#options = options
  }

  /** Returns the recording. If it was freed, runs the forward pass again. */
  get recording(): Recording {
    this.#recording ??= this.#record()
    return this.#recording
  }

  #record(): Recording {
    const run = () => recordModule(this.#segment, this.#input, this.#options)
    const isRepeated = this.#isRepeated
    this.#isRepeated = true
    return this.#pass === undefined ? run() : inPass({ ...this.#pass, isRepeated }, run)
  }

  /** Frees the recording with its output. The caller still owns the input. */
  free(): void {
    this.#recording?.dispose()
    this.#recording = undefined
  }
}

/** Runs a forward pass without recording it. The caller disposes the result, even if the result is `x`. */
export function runForward(module: Pick<Module, 'forward'>, x: Tensor): Tensor {
  return ownedResults(() => [module.forward(x)])[0]!
}

/** @throws ERR_TSR_ARGUMENT for a disposed value, and for a tf.Variable */
export function checkParameter({ name, value }: Parameter): void {
  checkAlive(`the value of ${name}`, value)
  // Only a tf.Variable has the property `trainable`.
  if (!('trainable' in value)) return
  throw argumentError(
    `the value of ${name}`,
    'a tf.Variable',
    'a tensor, which optimizers replace: createParameter(name, shape, values)',
  )
}
