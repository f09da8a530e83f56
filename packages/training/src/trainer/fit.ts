import { argumentError, tsrError } from '@tsrun/core'
import { onAllRanks } from '../checkpoint/coordination.ts'
import { latestFor } from '../checkpoint/folders.ts'
import { copyPieces } from '../checkpoint/piece.ts'
import { prepareSaves, type SavedCheckpoint } from '../checkpoint/save.ts'
import { ownersOf } from '../checkpoint/owners.ts'
import type { Evaluation } from '../parallel/pipeline/options.ts'
import { compareFit } from './agreement.ts'
import type { FitCallback, StepInfo } from './callbacks.ts'
import {
  evaluationData,
  noBatches,
  sourceOf,
  traceInput,
  type FitData,
  type Source,
} from './fit-data.ts'
import { readFitOptions, type FitEnd, type FitOptions, type FitResult } from './fit-options.ts'
import { fitProgress } from './fit-progress.ts'
import { Interruption } from './interruption.ts'
import type { Trainer } from './trainer.ts'

/** Implements `Trainer.fit`. All ranks call it with the same options. */
export async function fit(run: Trainer, data: FitData, given: FitOptions): Promise<FitResult> {
  const options = readFitOptions(given, data)
  const { evaluating, saving, callbacks } = options
  const source = sourceOf(run, data, options)
  await compareFit(options, data, run)
  const resumed = options.resume === 'auto' ? await resume(run, source, saving) : undefined
  if (options.resume === undefined) await refuseFarther(run, saving)
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
  const { unit, flops } = options
  const progress =
    options.progress && isFirst ? fitProgress({ first: run.steps, unit, flops, steps }) : undefined
  if (resumed !== undefined) progress?.resumed(resumed.checkpoint)
  const logs = isFirst ? options.log : []
  const interruption = new Interruption()
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
  const save = async (directory: string, keep?: number) => {
    await settle()
    const checkpoint = await run.save(directory, {
      ...(keep !== undefined && { keep }),
      background: true,
      ...(saving?.finite !== undefined && { finite: saving.finite }),
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
    if (isBest && saving?.best === true) await save(`${saving.directory}/best`, 1)
  }

  try {
    // After a resume at the end of an epoch, no batch is left in it.
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
          await save(saving.directory, saving.keep)
          saved = run.steps
        }
        end = await interruption.agree(run, asksToStop)
        if (end !== undefined || run.steps >= limit) break
      }
      if (run.steps === before && !mayBeEmpty) throw noBatches()
      mayBeEmpty = false
      const isThrough = source.epoch > epoch
      if (isThrough && evaluating?.every === undefined && end === undefined) {
        await evaluate()
        // Check again: a callback or a signal may have asked to stop during the evaluation.
        end = await interruption.agree(run, asksToStop)
      }
    }
    if (end === undefined) {
      await evaluate()
      end = (await interruption.agree(run, asksToStop)) ?? 'complete'
    }
    if (end !== 'complete') progress?.stopped(end, run.steps)
    if (saving === undefined) await checkValues(run)
    else if (saved !== run.steps) await save(saving.directory, saving.keep)
    await settle()
    const reason = end
    await call((callback) => callback.onEnd?.({ step: run.steps, reason }, run))
    interruption.setExitCode(end)
    return { steps: run.steps, losses, evaluations, end }
  } finally {
    // Await the pending save even if the training fails.
    await Promise.allSettled([pending?.checkpoint.done])
    interruption.dispose()
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
  /** Where the training originally started. The options `epochs` and `steps` count from there. */
  readonly first: { readonly step: number; readonly epoch: number }
}

/**
 * Checks that all values of the model are finite, for a `fit` without `save`. A step with non-finite
 * gradients may have a finite loss.
 *
 * @throws ERR_TSR_NOT_FINITE on all ranks
 */
async function checkValues({ state, layout }: Trainer): Promise<void> {
  await onAllRanks(layout.world, 'fit', async () => {
    for (const owner of ownersOf(state)) await copyPieces(owner)
  })
}

async function resume(
  run: Trainer,
  source: Source,
  saving: { readonly directory: string } | undefined,
) {
  if (saving === undefined) {
    throw argumentError('resume', 'auto', 'save: { directory } beside it')
  }
  const { directory } = saving
  const checkpoint = await latestFor('fit', directory, run.layout.world)
  if (checkpoint === undefined) return undefined
  const { data } = await run.load(checkpoint.path)
  // If the script itself saved the checkpoint, `data` may be any JSON value.
  const saved = data as Partial<SavedPosition> | null | undefined
  await source.loadState(saved?.position === undefined ? data : saved.position)
  const first = saved?.first ?? { step: 0, epoch: 0 }
  return { checkpoint, smallest: saved?.smallest ?? undefined, first }
}

/**
 * Rejects a directory with checkpoints of later steps. This training would overwrite them, or mix its
 * checkpoints with theirs.
 *
 * @throws ERR_TSR_ARGUMENT
 */
async function refuseFarther(
  run: Trainer,
  saving: { readonly directory: string } | undefined,
): Promise<void> {
  if (saving === undefined) return
  const found = await latestFor('fit', saving.directory, run.layout.world)
  if (found === undefined || found.step <= run.steps) return
  throw argumentError(
    'resume',
    `undefined, and ${found.path} is there`,
    "'auto' to resume from it, false to start from the beginning, or another save.directory",
  )
}
