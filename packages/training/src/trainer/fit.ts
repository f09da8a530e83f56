import { anything, count, declareOptions, flag, shown, tsrError, where } from '@tsrun/core'
import { latestCheckpoint } from '../checkpoint/folders.ts'
import type { SavedCheckpoint } from '../checkpoint/save.ts'
import type { Dataset } from '../data/dataset.ts'
import { isExamples, type Examples } from '../data/examples.ts'
import { dataLoader, type Loader, type LoaderState } from '../data/loader.ts'
import type { MetricLog } from '../metrics/metric-log.ts'
import type { Evaluation } from '../parallel/pipeline/options.ts'
import type { AnyBatch } from './batch.ts'
import { checkCallback, type FitCallback, type StepInfo } from './callbacks.ts'
import { Interruption } from './interruption.ts'
import { FitProgress } from './fit-progress.ts'
import type { Trainer } from './trainer.ts'

/** Any number of batches of this replica. */
export type Batches = Iterable<AnyBatch> | AsyncIterable<AnyBatch>

/** What `fit` trains on. */
export type FitData =
  Dataset | Examples | Loader | Batches | ((step: number) => AnyBatch | Promise<AnyBatch>)

export interface FitOptions {
  /** The number of times that all data are used; default 1, or any number of times with `steps`. */
  readonly epochs?: number
  /** The number of steps after which training ends, counted from the very first one. */
  readonly steps?: number
  /** For a data set: the number of examples in a batch, over all replicas. */
  readonly batch?: number
  /** For a data set: the order of the examples; default 0. */
  readonly seed?: number
  readonly evaluate?: EvaluateOptions
  readonly save?: SavingOptions
  /**
   * `auto`: goes on from the newest checkpoint in `save.directory`, if there is one. `false`: begins
   * anew, beside the checkpoints that are there, which `keep` may remove. Default: begins
   * anew, unless there are checkpoints that are farther.
   */
  readonly resume?: 'auto' | false
  /** Where metrics go: `tensorBoard(folder)`, `csv(file)`, `jsonl(file)`. Rank 0 writes. */
  readonly log?: readonly MetricLog[]
  readonly callbacks?: readonly FitCallback[]
  /** Whether rank 0 prints the progress; default true. */
  readonly progress?: boolean
  /** Names the unit of speed and its number in an example, for texts: `{ tokens: 64 }`. */
  readonly unit?: { readonly tokens: number }
  /** Floating-point operations for an example, forward and backward; the progress then shows GFLOP/s. */
  readonly flops?: number
}

export interface EvaluateOptions {
  /** The batches of this replica, made anew for each evaluation by a function; or a data set. */
  readonly data: Dataset | Examples | Iterable<AnyBatch> | (() => Batches)
  /** The number of steps between two evaluations; default: once after each epoch, or at the end. */
  readonly every?: number
  /** For a data set: the number of examples in a batch, over all replicas; default 1,000. */
  readonly batch?: number
}

export interface SavingOptions {
  readonly directory: string
  /** The number of steps between two checkpoints; default: at the end only. */
  readonly every?: number
  /** The number of checkpoints to keep; default all. */
  readonly keep?: number
  /**
   * Also saves to `<directory>/best` when an evaluation has the smallest loss so far; default false.
   */
  readonly best?: boolean
}

/** Why `fit` ended. */
export type FitEnd = 'complete' | 'callback' | 'SIGTERM' | 'SIGUSR1' | 'SIGINT'

/** The result of `fit`, the same on all ranks. */
export interface FitResult {
  /** The number of steps that have been made, also before a resume. */
  readonly steps: number
  /** The loss of each step of this call. */
  readonly losses: readonly number[]
  /** The evaluations of this call with the number of steps before each. */
  readonly evaluations: readonly (Evaluation & { readonly step: number })[]
  /**
   * `complete`: all epochs or steps. `callback`: a callback stopped the training. `SIGTERM`, `SIGUSR1`,
   * `SIGINT`: a rank got this signal, and everything is saved.
   */
  readonly end: FitEnd
}

const every = count({ from: 1 })

const readOptions = declareOptions({
  epochs: every.optional(),
  steps: every.optional(),
  batch: every.optional(),
  seed: anything<number>(),
  evaluate: anything<EvaluateOptions>(),
  save: anything<SavingOptions>(),
  resume: where<'auto' | false>(
    (value) => value === 'auto' || value === false,
    "'auto' or false",
  ).optional(),
  log: where<readonly MetricLog[]>(Array.isArray, 'a list, for example [jsonl(file)]').default([]),
  callbacks: where<readonly FitCallback[]>(Array.isArray, 'a list of callbacks').default([]),
  progress: flag().default(true),
  unit: anything<{ readonly tokens: number }>(),
  flops: anything<number>(),
})

const readEvaluate = declareOptions(
  {
    data: where<EvaluateOptions['data']>(
      (value) => typeof value === 'object' || typeof value === 'function',
      'a data set, batches, or a function that makes them',
    ),
    every: every.optional(),
    batch: every.default(1000),
  },
  'evaluate',
)

const readSave = declareOptions(
  {
    directory: where<string>((value) => typeof value === 'string', 'the path of a folder'),
    every: every.optional(),
    keep: every.optional(),
    best: flag().default(false),
  },
  'save',
)

/** Carries out `Trainer.fit`. All ranks call it with the same options. */
export async function fit(run: Trainer, data: FitData, given: FitOptions): Promise<FitResult> {
  const options = readOptions(given)
  const evaluating = options.evaluate && readEvaluate(options.evaluate)
  const saving = options.save && readSave(options.save)
  const source = sourceOf(run, data, options)
  const epochs = options.epochs ?? (options.steps === undefined ? 1 : Infinity)
  const limit = options.steps ?? Infinity
  if ((epochs === Infinity || typeof data === 'function') && limit === Infinity) {
    throw endless(data)
  }
  checkEvaluation(options, evaluating, saving)
  const resumed = options.resume === 'auto' ? await resume(run, source, saving) : undefined
  if (options.resume === undefined) await refuseFarther(run, saving)

  const losses: number[] = []
  const evaluations: (Evaluation & { step: number })[] = []
  const isFirst = run.rank === 0
  const progress = new FitProgress(options.progress && isFirst, {
    ...{ first: run.steps, unit: options.unit, flops: options.flops },
    steps: Math.min(limit, run.steps + Math.max(0, source.left?.(epochs) ?? Infinity)),
  })
  if (resumed !== undefined) progress.resumed(resumed)
  const logs = isFirst ? options.log : []
  const callbacks = options.callbacks
  callbacks.forEach(checkCallback)
  const interruption = new Interruption()
  let [end, smallest, saved]: [FitEnd | undefined, number, number | undefined] = [
    undefined,
    Infinity,
    undefined,
  ]
  let pending: SavedCheckpoint | undefined

  const call = async (ask: (callback: FitCallback) => unknown): Promise<void> => {
    for (const callback of callbacks) if ((await ask(callback)) === 'stop') end ??= 'callback'
  }
  const save = async (directory: string, keep?: number): Promise<void> => {
    await pending?.done
    pending = await run.save(directory, {
      ...(keep !== undefined && { keep }),
      background: true,
      data: source.state(),
    })
    const { path } = pending
    await call((callback) => callback.onSave?.({ step: run.steps, path }, run))
  }
  const evaluate = async (): Promise<void> => {
    if (evaluating === undefined || evaluations.at(-1)?.step === run.steps) return
    const found = await run.evaluate(evaluationData(run, evaluating))
    const info = { ...found, step: run.steps }
    evaluations.push(info)
    const isBest = found.loss < smallest
    if (isBest) smallest = found.loss
    progress.evaluated(found)
    for (const log of logs) {
      log.scalar('evaluate/loss', found.loss, run.steps)
      if (Number.isFinite(found.accuracy))
        log.scalar('evaluate/accuracy', found.accuracy, run.steps)
    }
    await call((callback) => callback.onEvaluate?.({ ...info, isBest }, run))
    if (isBest && saving?.best === true) await save(`${saving.directory}/best`, 1)
  }

  try {
    let empty = 0
    while (end === undefined && source.epoch < epochs && run.steps < limit) {
      const { epoch } = source
      empty++
      for await (const batch of source.batches()) {
        empty = 0
        const step = await run.step(batch)
        const signal = await interruption.agree(run)
        losses.push(step.loss)
        if (Number.isNaN(step.loss) && step.examples > 0) {
          await pending?.done
          throw tsrError('ERR_TSR_LOSS_NAN', { step: run.steps })
        }
        const info: StepInfo = {
          ...step,
          step: run.steps,
          epoch,
          learningRate: run.optimizer?.learningRate,
        }
        run.layout.world.reportProgress({ step: info.step, loss: info.loss })
        progress.step(info)
        for (const log of logs) {
          log.scalar('loss', info.loss, info.step)
          if (info.learningRate !== undefined) {
            log.scalar('learningRate', info.learningRate, info.step)
          }
          if (info.norm !== undefined) log.scalar('norm', info.norm, info.step)
        }
        await call((callback) => callback.onStep?.(info, run))
        end ??= signal
        if (isMultiple(run.steps, evaluating?.every)) await evaluate()
        if (saving !== undefined && isMultiple(run.steps, saving.every)) {
          await save(saving.directory, saving.keep)
          saved = run.steps
        }
        if (end !== undefined || run.steps >= limit) break
      }
      // The first one may be: training may go on at the end of an epoch.
      if (empty > 1) throw noBatches()
      const isThrough = source.epoch > epoch
      if (isThrough && evaluating?.every === undefined && end === undefined) await evaluate()
    }
    if (end === undefined && evaluating?.every === undefined) await evaluate()
    end ??= 'complete'
    if (end !== 'complete') progress.stopped(end, run.steps)
    if (saving !== undefined && saved !== run.steps) await save(saving.directory, saving.keep)
    await pending?.done
    const reason = end
    await call((callback) => callback.onEnd?.({ step: run.steps, reason }, run))
    interruption.setExitCode(end)
    return { steps: run.steps, losses, evaluations, end }
  } finally {
    interruption.dispose()
    progress.end()
    for (const log of logs) await log.flush()
  }
}

function isMultiple(step: number, every: number | undefined): boolean {
  return every !== undefined && step % every === 0
}

/** Where batches come from, with a position that a checkpoint keeps. */
interface Source {
  /** The number of epochs that are complete. */
  readonly epoch: number
  /** The number of batches that are left in so many epochs, if that is known. */
  left?(epochs: number): number
  /** The batches that are left of this epoch. The epoch is complete when they are used up. */
  batches(): Batches
  state(): unknown
  loadState(state: unknown): void | Promise<void>
}

function sourceOf(
  run: Trainer,
  data: FitData,
  { batch, seed }: { readonly batch: number | undefined; readonly seed: number | undefined },
): Source {
  if (typeof data === 'function') return functionSource(run, data)
  if (isDataset(data)) {
    if (batch === undefined) {
      const expected = 'the number of examples in a batch, over all replicas'
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'batch', value: 'undefined', expected })
    }
    return loaderSource(
      dataLoader(data, { batch, share: run.share, ...(seed !== undefined && { seed }) }),
    )
  }
  if ('loadState' in data && 'state' in data) return loaderSource(data)
  if (isIterable(data)) return iterableSource(data)
  const expected = 'a data set, a loader, batches, or a function of the step'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'data', value: shown(data), expected })
}

function isDataset(data: object): data is Dataset | Examples {
  return 'readInputs' in data || isExamples(data)
}

function isIterable(data: object): data is Batches {
  return Symbol.iterator in data || Symbol.asyncIterator in data
}

function loaderSource(loader: Loader): Source {
  return {
    get epoch() {
      return loader.epoch
    },
    left: (epochs) =>
      // A stream does not know its length.
      'length' in loader
        ? loader.remaining + loader.length * (epochs - loader.epoch - 1)
        : Infinity,
    batches: () => loader,
    state: () => loader.state(),
    loadState: (state) => {
      loader.loadState(state as LoaderState)
    },
  }
}

/** The step tells everything, so there are no epochs. */
function functionSource(
  run: Trainer,
  batchAt: (step: number) => AnyBatch | Promise<AnyBatch>,
): Source {
  return {
    epoch: 0,
    async *batches() {
      for (;;) yield await batchAt(run.steps)
    },
    state: () => null,
    loadState: () => undefined,
  }
}

/** An iterable is iterated once in each epoch; to resume, the batches that were used are left out. */
function iterableSource(data: Batches): Source {
  let [epoch, used] = [0, 0]
  return {
    get epoch() {
      return epoch
    },
    async *batches() {
      let place = 0
      for await (const batch of data) {
        if (place++ < used) continue
        used++
        yield batch
      }
      epoch++
      used = 0
    },
    state: () => ({ epoch, used }),
    loadState: (state) => {
      ;({ epoch, used } = state as { epoch: number; used: number })
    },
  }
}

/** @returns the checkpoint that the training goes on from, if there is one */
async function resume(
  run: Trainer,
  source: Source,
  saving: { readonly directory: string } | undefined,
): Promise<string | undefined> {
  if (saving === undefined) {
    const expected = 'save: { directory } beside it'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'resume', value: 'auto', expected })
  }
  const { directory } = saving
  if ((await latestCheckpoint(directory, run.layout.world)) === undefined) return undefined
  const { data, path } = await run.load(directory)
  await source.loadState(data)
  return path
}

/**
 * The checkpoints of an earlier training would be replaced by those of this one, or mixed with them.
 *
 * @throws ERR_TSR_ARGUMENT
 */
async function refuseFarther(
  run: Trainer,
  saving: { readonly directory: string } | undefined,
): Promise<void> {
  if (saving === undefined) return
  const found = await latestCheckpoint(saving.directory, run.layout.world)
  if (found === undefined || found.step <= run.steps) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'resume',
    value: `undefined, and ${found.path} is there`,
    expected: "'auto' to go on from it, false to begin anew, or another save.directory",
  })
}

function evaluationData(
  run: Trainer,
  { data, batch }: { readonly data: EvaluateOptions['data']; readonly batch: number },
): Batches {
  if (typeof data === 'function') return data()
  if (isDataset(data)) return dataLoader(data, { batch, shuffle: false, share: run.share })
  if (isIterable(data)) return data
  const expected = 'a data set, batches, or a function that makes them'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'evaluate.data', value: shown(data), expected })
}

function endless(data: FitData): Error {
  const isFunction = typeof data === 'function'
  const expected = isFunction
    ? 'a number, as a function of the step has no epochs'
    : 'a number of epochs or steps after which training ends'
  const name = isFunction ? 'steps' : 'epochs'
  return tsrError('ERR_TSR_ARGUMENT', { name, value: 'undefined', expected })
}

/** @throws ERR_TSR_ARGUMENT when something waits for evaluations that are never made, or only once */
function checkEvaluation(
  { callbacks }: Pick<FitOptions, 'callbacks'>,
  evaluating: { readonly data: EvaluateOptions['data'] } | undefined,
  saving: { readonly best: boolean } | undefined,
): void {
  const data = evaluating?.data
  const isSpent = typeof data === 'object' && isIterable(data) && isIterator(data)
  const waiting =
    saving?.best === true
      ? 'save.best'
      : callbacks?.some((callback) => 'onEvaluate' in callback) && 'onEvaluate of a callback'
  if (!isSpent && (data !== undefined || !waiting)) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: isSpent ? 'evaluate.data' : 'evaluate',
    value: isSpent ? 'a generator, which can be used only once' : 'undefined',
    expected: isSpent
      ? 'a function that makes one for each evaluation'
      : `{ data }, which ${String(waiting)} needs`,
  })
}

/** Whether it can be iterated only once. */
function isIterator(data: Batches): boolean {
  return typeof (data as Partial<Iterator<AnyBatch>>).next === 'function'
}

function noBatches(): Error {
  return tsrError('ERR_TSR_ARGUMENT', {
    name: 'data',
    value: 'without any batch',
    expected: 'at least one; a generator can be used only once: pass a function or a loader',
  })
}
