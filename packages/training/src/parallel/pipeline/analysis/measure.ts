import type { ProcessGroup } from '@tsrun/distributed'
import { recordModule } from '../../../autograd/record.ts'
import type { Module } from '../../../model/module.ts'
import type { Recording } from '../../../model/recording.ts'
import { shardedMLP } from '../../../nn/sequential.ts'
import { tf, type Tensor } from '../../../tfjs/tfjs.ts'
import { pipeline } from '../create.ts'
import { schedule, type ScheduleName } from '../schedule/schedule.ts'
import { StepMeter } from './meter.ts'
import { messageTime, pipelineReport, type PipelineReport } from './report.ts'

/** Options of `measureSchedules`. */
export interface MeasureOptions {
  /** The width of all layers, and of inputs and outputs. */
  readonly hidden: number
  readonly layers: number
  /** The number of examples in a batch. */
  readonly batch: number
  readonly microbatches: number
  readonly schedules: readonly ScheduleName[]
  /** The number of measured steps per schedule, after one warm-up step. */
  readonly steps: number
}

/** A schedule that `measureSchedules` has run. */
export interface MeasuredSchedule extends PipelineReport {
  readonly schedule: ScheduleName
}

/**
 * Runs forward and backward passes of a network of equal layers with one schedule after another. Reports
 * measured step times beside the predictions of the simulator. All ranks of `group` call it and get the
 * same result. A backend must be loaded.
 *
 * @throws ERR_TSR_STAGES when there are more stages than layers; ERR_TSR_ARGUMENT
 */
export async function measureSchedules(
  group: ProcessGroup,
  { hidden, layers, batch: size, microbatches, schedules, steps }: MeasureOptions,
): Promise<MeasuredSchedule[]> {
  const mlp = shardedMLP({ layers, inputs: hidden, hidden, outputs: hidden })
  const slice = (from: number, to: number): Module =>
    from === 0 ? withInputGradient(mlp.slice(from, to)) : mlp.slice(from, to)
  const runs = schedules.map((name) => {
    const options = { schedule: name, microbatches, loss: halfSquares }
    const pipe = pipeline({ layers, slice }, group, options)
    return { name, pipe, meter: new StepMeter(pipe.recorder) }
  })
  const batch = {
    size,
    inputs: () => tf.ones([size, hidden]),
    labels: () => tf.zeros([size], 'int32'),
  }
  const pass = async ({ pipe }: (typeof runs)[number]): Promise<void> => {
    const { gradients } = await pipe.forwardBackward(batch)
    for (const gradient of gradients.values()) gradient.dispose()
  }
  for (let step = -1; step < steps; step++) {
    for (const run of runs) {
      await group.barrier()
      await (step < 0 ? pass(run) : run.meter.time(() => pass(run)))
    }
  }
  const parts = Math.min(microbatches, size)
  const reports: MeasuredSchedule[] = []
  for (const { name, pipe, meter } of runs) {
    const stages = group.size * pipe.chunks.length
    const made = schedule(name, { stages, ranks: group.size, microbatches: parts })
    const spans = (await group.allGatherObject(meter.lastSpans)).flat()
    const report = pipelineReport(await meter.gather(group), made, { transfer: messageTime(spans) })
    reports.push({ schedule: name, ...report })
  }
  for (const { pipe } of runs) pipe.dispose()
  return reports
}

/**
 * Makes a stage always compute its input gradient. Otherwise the first stage would cost less than the
 * others.
 */
function withInputGradient(module: Module): Module {
  return {
    parameters: module.parameters,
    forward: (x) => module.forward(x),
    record: (x) => {
      const recording = recordModule(module, x, { needsInputGradient: true })
      const backward = recording.backward.bind(recording)
      const backwardInput = recording.backwardInput?.bind(recording)
      recording.backward = (...pass) => {
        backward(...pass)?.dispose()
        return undefined
      }
      if (backwardInput !== undefined) {
        recording.backwardInput = (dy) => {
          backwardInput(dy)?.dispose()
          return undefined
        }
      }
      return recording
    },
  }
}

/** The loss |y|^2 / 2, which costs almost nothing. The last stage thus costs as much as the others. */
function halfSquares(outputs: Tensor): Tensor {
  return tf.mul(tf.sum(tf.square(outputs)), 0.5)
}
halfSquares.record = (outputs: Tensor): Recording => {
  const value = tf.tidy(() => halfSquares(outputs))
  return {
    value,
    backward: (dy) => tf.mul(outputs, dy),
    dispose: () => {
      value.dispose()
    },
  }
}
