import { monotonicNow, tsrError } from '@tsrun/core'
import { timeSpan, type SpanRecorder } from '@tsrun/telemetry'
import type { Parameter } from '../../model/parameter.ts'
import { clipGradients, type ClippedGradients, type ClipOptions } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type { Averaging, OwnTotals, StepTotals } from './averaging.ts'

/**
 * Replaces how a trainer averages its gradients.
 *
 * @param trainer - what the error calls it
 * @throws ERR_TSR_ARGUMENT when its gradients are already averaged
 */
export function replaceAveraging(
  current: Averaging | undefined,
  next: Averaging | undefined,
  trainer: string,
): Averaging | undefined {
  if (next === undefined || current === undefined) return next
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: trainer,
    value: 'one whose gradients are already averaged',
    expected: 'one call of dataParallel or fullyShard, over all replicas',
  })
}

/**
 * The optimizer of a trainer, which `step` needs.
 *
 * @param options - what the error calls the options that it belongs to
 * @throws ERR_TSR_ARGUMENT
 */
export function optimizerFor(optimizer: Optimizer | undefined, options: string): Optimizer {
  if (optimizer !== undefined) return optimizer
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'optimizer',
    value: 'undefined',
    expected: `an optimizer in ${options}; forwardBackward() needs none`,
  })
}

interface ComputedStep {
  readonly parameters: readonly Parameter[]
  readonly optimizer: Optimizer
  readonly averaging: Averaging | undefined
  /** Those that no averaging has taken. */
  readonly gradients: ClippedGradients
  /** What this rank adds to the totals. */
  readonly own: OwnTotals
  /** How gradients are clipped, with the groups that share the model beside `averaging.shard`. */
  readonly clip: ClipOptions | undefined
  readonly recorder: SpanRecorder | undefined
}

interface FinishedStep {
  /** Milliseconds of waiting for averaged gradients. */
  readonly waited: number
  /** With `clip`. */
  readonly norm?: number
  /** Of all ranks, if they were summed. */
  readonly totals?: StepTotals
}

/** The rest of a step after its backward passes: averages and clips gradients, updates parameters. */
export async function finishStep({
  parameters,
  optimizer,
  averaging,
  gradients,
  own,
  clip,
  recorder,
}: ComputedStep): Promise<FinishedStep> {
  const computed = monotonicNow()
  const averaged = await averaging?.average(own)
  const waited = monotonicNow() - computed
  const taken = averaged?.gradients ?? gradients
  const totals = averaged?.totals
  const shard = averaging?.shard
  const norm =
    clip &&
    (await clipGradients(averaging?.updated ?? parameters, taken, {
      ...clip,
      ...(shard !== undefined && { shard }),
    }))
  if (averaging !== undefined) await averaging.update(optimizer, taken, recorder)
  else {
    timeSpan(recorder, 'optimizer', {}, () => {
      optimizer.step(parameters, taken)
    })
  }
  return { waited, ...(norm !== undefined && { norm }), ...(totals && { totals }) }
}
