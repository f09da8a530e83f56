import { argumentError, formatSeconds, ProgressLine, tsrError } from '@tsrun/core'
import { onAllRanks } from '../checkpoint/coordination.ts'
import { latestFor, type LatestCheckpoint } from '../checkpoint/folders.ts'
import { copyPieces } from '../checkpoint/piece.ts'
import { prepareSaves, type SavedCheckpoint } from '../checkpoint/save.ts'
import { ownersOf } from '../checkpoint/owners.ts'
import type { Evaluation } from '../parallel/pipeline/options.ts'
import { compareFacts } from './agreement.ts'
import type { FitCallback, StepInfo } from './callbacks.ts'
import {
  evaluationData,
  lengthOf,
  sourceOf,
  traceInput,
  type FitData,
  type Source,
} from './fit-data.ts'
import {
  readFitOptions,
  type CheckedFitOptions,
  type FitEnd,
  type FitOptions,
  type FitResult,
} from './fit-options.ts'
import { watchSignals } from './interruption.ts'
import type { Trainer } from './trainer.ts'

/** Implements `Trainer.fit`. All ranks call it with the same options. */
export async function fit(run: Trainer, data: FitData, given: FitOptions): Promise<FitResult> {
  const options = readFitOptions(given, data)
  const { evaluating, saving, callbacks } = options
  const source = sourceOf(run, data, options)
  // Ranks with different options would evaluate and save at different steps, or train on wrong data.
  await compareFacts(run.layout.world, 'options of fit', {
    epochs: options.epochs,
    steps: options.steps,
    batch: options.batch,
    seed: options.seed,
    resume: options.resume,
    data: lengthOf(data),
    evaluate: evaluating && [evaluating.every, evaluating.batch, lengthOf(evaluating.data)],
    save: saving && [saving.every, saving.keep, saving.best],
  })
  const resumed = await resumeFrom(run, source, options)
  if (saving !== undefined) await prepareSaves(run.updated, run.layout.world)
  /** The step and the epoch at which this training originally started, before any resume. */
  const first = resumed?.first ?? { step: run.steps, epoch: source.epoch }
  const epochs = first.epoch + options.epochs
  const limit = first.step + options.steps

  const losses: number[] = []
  const evaluations: (Evaluation & { step: number })[] = []
  const isFirst = run.rank === 0
  const steps = Math.min(limit, run.steps + Math.max(0, source.left?.(epochs) ?? Infinity))
  if (Number.isFinite(steps)) run.layout.world.reportProgress({ of: steps })
  const progress = options.progress && isFirst ? fitProgress(run.steps, steps, options) : undefined
  if (resumed !== undefined) progress?.resumed(resumed.checkpoint)
  const logs = isFirst ? options.log : []
  const signals = watchSignals()
  let end: FitEnd | undefined
  /** Whether a callback on this rank returned `stop`. */
  let asksToStop = false
  /** The smallest evaluation loss so far, including evaluations before a resume. */
  let smallest = resumed?.smallest ?? Infinity
  let saved: number | undefined
  let pending: { readonly step: number; readonly checkpoint: SavedCheckpoint } | undefined

  const write = (figures: Readonly<Record<string, number | undefined>>) => {
    for (const log of logs) {
      for (const [name, value] of Object.entries(figures)) {
        if (value !== undefined) log.scalar(name, value, run.steps)
      }
    }
  }
  const call = async (ask: (callback: FitCallback) => unknown) => {
    for (const callback of callbacks) if ((await ask(callback)) === 'stop') asksToStop = true
  }
  /** Waits for the pending save, then notifies callbacks. */
  const settle = async () => {
    if (pending === undefined) return
    const { step, checkpoint } = pending
    await checkpoint.done
    pending = undefined
    await call((callback) => callback.onSave?.({ step, path: checkpoint.path }, run))
  }
  const save = async ({ directory, keep, finite }: NonNullable<CheckedFitOptions['saving']>) => {
    await settle()
    const checkpoint = await run.save(directory, {
      keep,
      finite,
      background: true,
      data: {
        position: source.state(),
        smallest: Number.isFinite(smallest) ? smallest : null,
        first,
      } satisfies SavedPosition,
    })
    pending = { step: run.steps, checkpoint }
  }
  const evaluate = async () => {
    if (evaluating === undefined || evaluations.at(-1)?.step === run.steps) return
    const found = await run.evaluate(await evaluationData(run, evaluating, 'evaluate.data'))
    const info = { ...found, step: run.steps }
    evaluations.push(info)
    const isBest = found.loss < smallest
    if (isBest) smallest = found.loss
    progress?.evaluated(found)
    const accuracy = Number.isFinite(found.accuracy) ? found.accuracy : undefined
    write({ 'evaluate/loss': found.loss, 'evaluate/accuracy': accuracy })
    await call((callback) => callback.onEvaluate?.({ ...info, isBest }, run))
    if (isBest && saving?.best === true) {
      await save({ ...saving, directory: `${saving.directory}/best`, keep: 1 })
    }
  }

  try {
    // After a resume at the end of an epoch, the epoch has no batches left.
    let mayBeEmpty = resumed !== undefined || 'loadState' in data
    while (end === undefined && source.epoch < epochs && run.steps < limit) {
      const { epoch } = source
      const before = run.steps
      for await (const batch of traceInput(source.batches())) {
        const step = await run.step(batch)
        losses.push(step.loss)
        if (Number.isNaN(step.loss) && step.examples > 0) {
          throw tsrError('ERR_TSR_LOSS_NAN', { step: run.steps })
        }
        if (step.norm !== undefined && !Number.isFinite(step.norm)) {
          const what = `the norm of the gradients of step ${run.steps}`
          throw tsrError('ERR_TSR_NOT_FINITE', { what, value: step.norm })
        }
        const info: StepInfo = {
          ...step,
          step: run.steps,
          epoch,
          learningRate: run.optimizer?.learningRate,
        }
        progress?.step(info)
        const { loss, learningRate, norm } = info
        write({ loss, learningRate, norm })
        await call((callback) => callback.onStep?.(info, run))
        if (isMultiple(run.steps, evaluating?.every)) await evaluate()
        if (saving !== undefined && isMultiple(run.steps, saving.every)) {
          await save(saving)
          saved = run.steps
        }
        end = await signals.agree(run.layout.world, asksToStop)
        if (end !== undefined || run.steps >= limit) break
      }
      if (run.steps === before && !mayBeEmpty) {
        throw argumentError(
          'data',
          'without any batch',
          'at least one; a generator can be used only once: pass a function or a loader',
        )
      }
      mayBeEmpty = false
      const isThrough = source.epoch > epoch
      if (isThrough && evaluating?.every === undefined && end === undefined) {
        await evaluate()
        // Check again: a callback or a signal may have asked to stop during the evaluation.
        end = await signals.agree(run.layout.world, asksToStop)
      }
    }
    if (end === undefined) {
      await evaluate()
      end = (await signals.agree(run.layout.world, asksToStop)) ?? 'complete'
    }
    if (end !== 'complete') progress?.stopped(end, run.steps)
    if (saving === undefined) await checkValues(run)
    else if (saved !== run.steps) await save(saving)
    await settle()
    const reason = end
    await call((callback) => callback.onEnd?.({ step: run.steps, reason }, run))
    signals.setExitCode(end)
    return { steps: run.steps, losses, evaluations, end }
  } finally {
    // Await the pending save even if the training fails.
    await Promise.allSettled([pending?.checkpoint.done])
    signals.dispose()
    progress?.end()
    for (const log of logs) await log.flush()
  }
}

function isMultiple(step: number, every: number | undefined): boolean {
  return every !== undefined && step % every === 0
}

interface SavedPosition {
  readonly position: unknown
  readonly smallest: number | null
  /** The step and the epoch of the original start, from which `epochs` and `steps` are counted. */
  readonly first: { readonly step: number; readonly epoch: number }
}

/** Throws unless the model has finite values. A step with non-finite gradients may have a finite loss. */
async function checkValues({ state, layout }: Trainer): Promise<void> {
  await onAllRanks(layout.world, 'fit', async () => {
    for (const owner of ownersOf(state)) await copyPieces(owner)
  })
}

/**
 * Resumes from the newest checkpoint if the option `resume` is `auto`. If it is omitted, rejects a
 * directory with checkpoints of later steps, because the new checkpoints would mix with them.
 */
async function resumeFrom(run: Trainer, source: Source, { resume, saving }: CheckedFitOptions) {
  if (saving === undefined && resume === 'auto') {
    throw argumentError('resume', 'auto', 'save: { directory } beside it')
  }
  if (saving === undefined || resume === false) return undefined
  const checkpoint = await latestFor('fit', saving.directory, run.layout.world)
  if (checkpoint === undefined) return undefined
  if (resume === undefined) {
    if (checkpoint.step <= run.steps) return undefined
    throw argumentError(
      'resume',
      `undefined, and ${checkpoint.path} is there`,
      "'auto' to resume from it, false to start from the beginning, or another save.directory",
    )
  }
  const { data } = await run.load(checkpoint.path)
  // If the script itself saved the checkpoint, `data` may be any JSON value.
  const saved = data as Partial<SavedPosition> | null | undefined
  await source.loadState(saved?.position === undefined ? data : saved.position)
  const first = saved?.first ?? { step: 0, epoch: 0 }
  return { checkpoint, smallest: saved?.smallest ?? undefined, first }
}

/** Prints the progress of a `fit` from step `first` to step `steps`, which may be Infinity. */
function fitProgress(first: number, steps: number, { unit, flops }: CheckedFitOptions) {
  const output = new ProgressLine()
  /** The end of the first step, which is excluded from the speed because it includes compilation. */
  let begin: number | undefined
  let [at, examples, counted] = [0, 0, 0]
  let last: StepInfo | undefined

  const line = ({ step, loss, learningRate }: StepInfo) => {
    const seconds = (at - begin!) / 1000
    const perSecond = seconds === 0 ? 0 : examples / seconds
    const of = Number.isFinite(steps) ? `/${steps}` : ''
    const [each, what] = unit === undefined ? [1, 'examples'] : [unit.tokens, 'tokens']
    const speed = `${Math.round(perSecond * each).toLocaleString('en-US')} ${what}/s`
    const left = ((steps - step) * seconds) / Math.max(1, step - first - 1)
    const isKnown = Number.isFinite(left) && left > 0 && counted > 0
    const parts = [
      `step ${step}${of}`,
      `loss ${short(loss)}`,
      learningRate !== undefined && `rate ${learningRate.toPrecision(2)}`,
      counted > 0 && speed,
      flops !== undefined && `${((perSecond * flops) / 1e9).toFixed(1)} GFLOP/s`,
      isKnown && `${formatSeconds(left)} left`,
    ]
    return parts.filter((part) => part !== false).join('  ')
  }
  return {
    resumed({ path, skipped: [newest] }: LatestCheckpoint) {
      const left = first >= steps ? ', where nothing is left to train' : ''
      const but = newest === undefined ? '' : `; ${newest.path} cannot be used: ${newest.problem}`
      output.log(`resumes after step ${first} from ${path}${left}${but}`)
    },
    stopped(by: FitEnd, step: number) {
      output.log(`stopped by ${by === 'callback' ? 'a callback' : by} after step ${step}`)
    },
    step(info: StepInfo) {
      last = info
      at = performance.now()
      if (begin === undefined) begin = at
      else {
        examples += info.examples
        counted++
      }
      output.update(() => line(info))
    },
    evaluated({ loss, accuracy }: Evaluation) {
      // Exclude the time of evaluations from the speed.
      const now = performance.now()
      if (begin !== undefined) begin += now - at
      at = now
      const right = Number.isFinite(accuracy) ? `  accuracy ${(100 * accuracy).toFixed(2)} %` : ''
      const step = last === undefined ? '' : `step ${last.step}  `
      output.log(`${step}evaluation: loss ${short(loss)}${right}`)
    },
    end() {
      if (last !== undefined) output.log(line(last))
    },
  }
}

function short(loss: number): string {
  return Number.isFinite(loss) ? loss.toPrecision(4) : String(loss)
}
