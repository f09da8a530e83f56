import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan, type SpanRecorder } from '@tsrun/distributed/record'
import { recordChain, type SegmentedRecording } from '../../autograd/chain.ts'
import { RepeatableRecording, runForward } from '../../autograd/record.ts'
import { sumInto } from '../../autograd/sum-gradients.ts'
import { takeScalar } from '../../backend/host-memory.ts'
import { chainOf, usesPass, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { inPass } from '../../model/pass.ts'
import type { GradientListener, Recording } from '../../model/recording.ts'
import type { PartLoss } from '../../nn/part-loss.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { Averaging } from '../gradients/averaging.ts'
import { recomputedLayers, searchRecomputed, type Recompute } from '../recipe.ts'
import { recordSegments } from '../tensor/record-segments.ts'
import type { BatchPlace } from './microbatches.ts'
import type { Action } from './schedule/actions.ts'

interface InFlight extends Pick<Arrival, 'input' | 'labels' | 'isEmpty'> {
  readonly pass: StagePass
  /** The recording of the loss, on the last stage; undefined while it is freed to be recomputed. */
  loss: Recording | undefined
}

/** Settings for the gradients of a batch, common to all stages of a rank. */
export interface GradientPlan {
  /** The position of the batch in the training; see `BatchPlace`. */
  readonly place: BatchPlace
  /** The groups of ranks that run the same pass on other examples; see `Pass.replicas`. */
  readonly replicas: readonly ProcessGroup[] | undefined
  /** The factor by which the summed loss is multiplied. */
  readonly scale: number
  /** Averages the gradients of each pass; only for a stage that is the whole model. */
  readonly averaging: Averaging | undefined
  /** Takes each gradient as soon as it is summed over all micro-batches. By default, the sums are returned. */
  readonly onGradient: GradientListener | undefined
  /** Whether other stages share a parameter. Its gradient is returned even with `onGradient`. */
  readonly isShared: (name: string) => boolean
}

/** The arguments of a micro-batch's forward pass through a stage. */
export interface Arrival {
  /** The input tensor, which the stage owns. */
  readonly input: Tensor
  /** The labels, which the stage owns; only on the last stage. */
  readonly labels: Tensor | undefined
  /** Whether any earlier stage has parameters, so that the input gradient is needed. */
  readonly needsInputGradient: boolean
  /** The index of the micro-batch's first row in the batch. */
  readonly row: number
  /** Whether the micro-batch has no examples. Its placeholder row only takes part in collectives. */
  readonly isEmpty: boolean
}

export type PipelineStage = ReturnType<typeof pipelineStage>

/**
 * Runs the computations of one pipeline stage. Keeps the activations of each micro-batch from its forward to
 * its backward pass. Sums parameter gradients over the micro-batches.
 */
export function pipelineStage(
  module: Module,
  loss: PartLoss,
  isWhole: boolean,
  options: RunnerOptions,
) {
  const { recorder } = options
  const runner = stageRunner(module, isWhole, options)
  const needsPass = usesPass(module)
  const inFlight = new Map<number, InFlight>()
  /** The plan of the batch, and the sums of its gradients; set by `begin`. */
  let plan!: GradientPlan
  let gradients: Map<string, Tensor>
  let losses: (number | Promise<number>)[] = []

  const free = (microbatch: number) => {
    const { pass, loss, labels, input } = inFlight.get(microbatch)!
    inFlight.delete(microbatch)
    timeSpan(recorder, 'B', { name: 'free' }, () => {
      if ('free' in pass) pass.free()
      else pass.dispose()
      for (const each of [loss, labels, input]) each?.dispose()
    })
  }
  /** Frees the activations of a batch that failed. */
  const reset = () => {
    for (const microbatch of [...inFlight.keys()]) free(microbatch)
    losses = []
  }
  const lossOf = async (flight: InFlight) => {
    flight.loss ??= await loss.record(recorded(flight).value, flight.labels!)
    return flight.loss
  }
  /** Returns the gradient of the loss times the scale, which all micro-batches share. */
  const lossGradient = async (flight: InFlight) => {
    if (flight.isEmpty) return tf.keep(tf.zerosLike(recorded(flight).value))
    const lossRecording = await lossOf(flight)
    const start = tf.scalar(plan.scale)
    try {
      return lossRecording.backward(start, () => undefined)!
    } finally {
      start.dispose()
    }
  }
  const handOver = (parameter: Parameter) => {
    const { onGradient, isShared } = plan
    const sum = gradients.get(parameter.name)
    if (onGradient === undefined || sum === undefined || isShared(parameter.name)) return
    gradients.delete(parameter.name)
    onGradient(parameter, sum)
  }
  const sink = ({ isEmpty }: InFlight, isLast: boolean): GradientListener => {
    const { averaging, onGradient } = plan
    if (averaging !== undefined) return averaging.onGradient
    if (isEmpty) {
      return (_parameter, gradient) => {
        gradient.dispose()
      }
    }
    const add = sumInto(gradients)
    // Return `add` itself if no listener receives the sums. A pass then adds to the sums in place.
    if (!isLast || onGradient === undefined) return add
    return (parameter, gradient) => {
      add(parameter, gradient)
      handOver(parameter)
    }
  }

  return {
    get parameters() {
      return module.parameters
    },
    reset,

    /** @param sums - the gradients of the batch, which all stages of the rank add to, by parameter name */
    begin(next: GradientPlan, sums: Map<string, Tensor>) {
      plan = next
      gradients = sums
    },

    free,

    /** Returns the loss summed over the batch. Call it after all forward passes, on the last stage. */
    async summedLoss() {
      let sum = 0
      for (const each of losses) sum += await each
      return sum
    },

    /**
     * Runs the forward pass of a micro-batch, on the last stage including the loss.
     *
     * @returns the output, valid until `release` or the backward pass of the micro-batch
     */
    async forward(
      microbatch: number,
      { input, labels, needsInputGradient, row, isEmpty }: Arrival,
    ) {
      const { place, replicas, averaging } = plan
      const run = () => runner.record(input, needsInputGradient, averaging)
      const facts = { training: true, step: place.step, row: place.row + row }
      let flight: InFlight
      let output: Tensor
      try {
        const pass = await (needsPass || isEmpty
          ? inPass({ ...facts, isEmpty, replicas }, run)
          : run())
        flight = { input, labels, pass, isEmpty, loss: undefined }
        output = recorded(flight).value
      } catch (error) {
        tf.dispose([input, labels])
        throw error
      }
      inFlight.set(microbatch, flight)
      if (labels !== undefined && !isEmpty) {
        await timeSpan(recorder, 'F', { name: 'loss' }, async () => {
          const { value: sum } = await lossOf(flight)
          const value = takeScalar(tf.clone(sum))
          // Ignore an error here, because summedLoss() awaits the same promise and throws it.
          if (typeof value !== 'number') value.catch(() => undefined)
          losses.push(value)
        })
      }
      return output
    },

    /** If the stage keeps only inputs, frees all other tensors. Call it when the output is no longer needed. */
    release(microbatch: number) {
      const flight = inFlight.get(microbatch)!
      if (!runner.keepsInput || !('free' in flight.pass)) return
      flight.pass.free()
      flight.loss?.dispose()
      flight.loss = undefined
    },

    /**
     * Runs the backward pass of a micro-batch (`B`), or its first half (`I`) or second half (`W`). Frees the
     * activations at the end of `B` and `W`.
     *
     * @param outputGradient - the gradient of the output, disposed by this call; undefined for `W`, and on
     *   the last stage, which starts from the loss
     * @param isLast - whether this is the last backward pass of the batch, which completes the
     *   gradient sums
     * @returns the gradient of the input, which the caller disposes; undefined if no earlier stage
     *   needs it
     */
    async backward(
      { kind, microbatch }: Action,
      outputGradient: Tensor | undefined,
      isLast: boolean,
    ) {
      const { averaging } = plan
      if (averaging !== undefined) averaging.synchronizes = isLast
      const flight = inFlight.get(microbatch)!
      let inputGradient: Tensor | undefined
      if (kind !== 'W') {
        let dy = outputGradient
        const run = () => {
          const pass = recorded(flight)
          return kind === 'I' && hasHalves(pass)
            ? pass.backwardInput(dy!)
            : pass.backward(dy!, sink(flight, isLast))
        }
        try {
          dy ??= await timeSpan(recorder, 'B', { name: 'loss' }, () => lossGradient(flight))
          inputGradient = await (flight.isEmpty
            ? inPass({ training: true, step: 0, isEmpty: true }, run)
            : run())
        } finally {
          dy?.dispose()
        }
      } else {
        const pass = recorded(flight)
        if (hasHalves(pass)) pass.backwardParameters?.(sink(flight, isLast))
      }
      if (kind === 'I') return inputGradient
      free(microbatch)
      // Pass on sums to which the last micro-batch added no gradient.
      if (isLast) for (const parameter of module.parameters) handOver(parameter)
      return inputGradient
    },

    /** Runs a forward pass without a backward pass. Disposes `input`; the caller disposes the output. */
    async infer(input: Tensor) {
      try {
        return await runner.infer(input)
      } finally {
        input.dispose()
      }
    },

    /** Returns the summed loss and the number of correct answers for some outputs. Disposes the labels. */
    async tally(outputs: Tensor, labels: Tensor) {
      try {
        return await loss.tally(outputs, labels)
      } finally {
        labels.dispose()
      }
    },
  }
}

type StagePass = RepeatableRecording | SegmentedRecording

/** Returns the recording of a micro-batch's pass. Runs the forward pass unless it has run and was kept. */
function recorded({ pass }: InFlight) {
  return 'recording' in pass ? pass.recording : pass
}

/** Whether the backward pass is divided into halves. If not, `I` runs the whole backward pass. */
function hasHalves(
  pass: Recording | SegmentedRecording,
): pass is Recording & Pick<Required<Recording>, 'backwardInput'> {
  return (pass as Partial<Recording>).backwardInput !== undefined
}

interface RunnerOptions {
  readonly recompute: Recompute
  /** The tensor parallel group, whose ranks share the layers. */
  readonly tensor?: ProcessGroup | undefined
  /** Records each pass as a span. */
  readonly recorder?: SpanRecorder | undefined
}

/**
 * Runs the forward passes of a stage's module. If all layers are recomputed, a stage keeps only its input until
 * the backward pass. A stage that is the whole model keeps the input of each layer: with the first input only,
 * the repeated forward pass would need as much memory as the original.
 *
 * @throws ERR_TSR_ARGUMENT for a pattern of `recompute` that matches no layer of the whole model
 */
function stageRunner(
  module: Module,
  isWhole: boolean,
  { recompute, tensor, recorder }: RunnerOptions,
) {
  const isShared = tensor !== undefined && tensor.size > 1
  const keepsInput = !isWhole && recompute === true
  const chosen = isWhole
    ? recomputedLayers(recompute, module)
    : searchRecomputed(!keepsInput && recompute, module).chosen
  return {
    /** Whether a stage keeps only its input until the backward pass. */
    keepsInput,
    record(
      x: Tensor,
      needsInputGradient: boolean,
      averaging?: Averaging,
    ): StagePass | Promise<StagePass> {
      const options = { needsInputGradient, recorder }
      const units = averaging?.recordUnits?.(x, options)
      if (units !== undefined) return units
      if (chosen.includes(true)) {
        return recordChain(chainOf(module), x, { ...options, recompute: chosen })
      }
      if (isShared) return recordSegments(module, x, options)
      return new RepeatableRecording(module, x, options)
    },
    /** Runs a forward pass without a backward pass; the caller disposes the output. */
    async infer(x: Tensor) {
      if (!isShared) return runForward(module, x)
      // Record the pass although no backward pass follows: a recording awaits its collectives,
      // while `runForward` would block. `training` is false.
      const recording = await inPass({ training: false, step: 0, row: 0 }, () =>
        recordSegments(module, x, { needsInputGradient: false }),
      )
      const outputs = tf.keep(tf.clone(recording.value))
      recording.dispose()
      return outputs
    },
  }
}
