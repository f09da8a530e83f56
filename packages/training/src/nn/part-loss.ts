import { argumentError, callback, choice, shown, where } from '@tsrun/core'
import { record } from '../autograd/record.ts'
import { takeScalar } from '../backend/host-memory.ts'
import type { Recording } from '../model/recording.ts'
import { isTensor, tf, type Tensor } from '../tfjs/tfjs.ts'
import { isPartial } from './cross-entropy.ts'
import { answersOf, recordEvaluated, recordLoss, type Answers, type Loss } from './loss.ts'

/** The results of an evaluation on a part of the data. The tallies of all parts and ranks can be added. */
export interface Tally {
  /** The sum of the losses. */
  readonly loss: number
  /** The number by which to divide the sum of the losses. */
  readonly count: number
  readonly examples: number
  /** The number of correct answers (NaN if not countable), and the number of all answers. */
  readonly correct: number
  readonly of: number
}

export const noTally: Tally = { loss: 0, count: 0, examples: 0, correct: 0, of: 0 }

export function addTallies(a: Tally, b: Tally): Tally {
  const more = figuresOf(b)
  return tallyOf(figuresOf(a).map((figure, i) => figure + more[i]!))
}

/** Returns the numbers of a tally, to send them as a message. */
export function figuresOf({ loss, count, examples, correct, of }: Tally): readonly number[] {
  return [loss, count, examples, correct, of]
}

export function tallyOf(figures: readonly number[]): Tally {
  const [loss, count, examples, correct, of] = figures as [number, number, number, number, number]
  return { loss, count, examples, correct, of }
}

/** Returns the mean loss: NaN without examples, and 0 if all labels are ignored. */
export function meanOf({ loss, count, examples }: Omit<Tally, 'correct' | 'of'>): number {
  if (examples === 0) return NaN
  return count === 0 ? 0 : loss / count
}

export type PartLoss = ReturnType<typeof partLoss>

/**
 * Sums a loss over parts of the data, to divide by the final denominator. If a loss does not declare
 * whether it is a mean or a sum, a trial evaluates it again with each example repeated. A mean stays the
 * same, and its gradient per example halves. A sum doubles, and its gradient per example stays the same.
 * If the value and the gradient are 0, the trial is repeated with later examples.
 *
 * @throws ERR_TSR_ARGUMENT when a property of the loss is invalid
 */
export function partLoss(given: Loss) {
  const { summed } = given
  const declared = reductionRule.check('loss.reduction', given.reduction)
  functionRule.check('loss.summed', summed)
  const loss = summed ?? given
  const known = summed === undefined ? declared : 'sum'
  /** The reduction of the loss; undefined until a trial determines it. */
  let reduction = known
  const countLabels = given.count ?? summed?.count
  const countCorrect = given.countCorrect ?? summed?.countCorrect
  functionRule.check('loss.count', countLabels)
  functionRule.check('loss.countCorrect', countCorrect)

  const count = async ({ size, allLabels }: Countable): Promise<number> => {
    if (countLabels === undefined || size === 0) return size
    const labels = allLabels()
    return countRule.check('the count of the loss', await tidied(() => countLabels(labels)))
  }
  const countOf = (labels: Tensor) => count({ size: labels.shape[0], allLabels: () => labels })
  const computed = (outputs: Tensor, labels: Tensor) =>
    scalarRule.check('the result of the loss', loss(outputs, labels))

  const probe = (outputs: Tensor, labels: Tensor) => {
    const recorded = taped((x) => computed(x, labels), outputs)
    const one = tf.onesLike(recorded.value)
    const gradient = recorded.backward(one, () => undefined)!
    const value = takeScalar(tf.clone(recorded.value))
    const slope = takeScalar(tf.tidy(() => tf.max(tf.abs(gradient))))
    recorded.dispose()
    tf.dispose([one, gradient])
    return [value, slope] as const
  }
  const determineReduction = async (outputs: Tensor, labels: Tensor) => {
    if (reduction !== undefined) return
    const double = (tensor: Tensor) => tf.concat([tensor, tensor], 0)
    const once = probe(outputs, labels)
    const twofold = [double(outputs), double(labels)] as const
    const figures = [...once, ...probe(...twofold)].map(async (figure) => await figure)
    tf.dispose([...twofold])
    reduction = reductionOf((await Promise.all(figures)) as unknown as Figures)
  }

  return {
    countsLabels: countLabels !== undefined,

    /** Returns the reduction that this rank's trial determined, for ranks without a trial. */
    found: () => (known === undefined ? reduction : undefined),

    /** Adopts the reduction that another rank's trial determined. */
    adopt(found: 'mean' | 'sum' | undefined) {
      reduction ??= found
    },

    /**
     * Returns the denominator for a batch. Reads the labels only if the loss has a `count`.
     *
     * @throws ERR_TSR_ARGUMENT when `count` returns anything but a number from 0
     */
    count,

    /**
     * Records the loss as a sum over the examples.
     *
     * @throws ERR_TSR_ARGUMENT when the loss is not a scalar, or neither a mean nor a sum
     */
    async record(outputs: Tensor, labels: Tensor): Promise<Recording> {
      await determineReduction(outputs, labels)
      if (reduction === 'sum') {
        if (loss.record !== undefined) return recordLoss(loss, outputs, labels)
        return taped((x) => computed(x, labels), outputs)
      }
      const counted = await countOf(labels)
      return counted === 0
        ? recordEvaluated({ value: tf.scalar(0), gradient: tf.keep(tf.zerosLike(outputs)) })
        : taped((x) => tf.mul(computed(x, labels), counted), outputs)
    },

    /** Computes the sum of the losses, and counts the correct answers. The caller still owns both tensors. */
    async tally(outputs: Tensor, labels: Tensor): Promise<Tally> {
      await determineReduction(outputs, labels)
      const counted = await countOf(labels)
      const isMean = reduction !== 'sum'
      const value =
        isMean && counted === 0 ? 0 : await takeScalar(tf.tidy(() => computed(outputs, labels)))
      const hasClasses =
        labels.dtype === 'int32' && outputs.rank === labels.rank + 1 && !isPartial(outputs)
      const correct =
        countCorrect === undefined
          ? hasClasses
            ? answersOf(outputs, labels)
            : NaN
          : tidied(() => countCorrect(outputs, labels))
      const answers = answersRule.check('the right answers of the loss', await correct)
      return {
        loss: isMean ? value * counted : value,
        count: counted,
        examples: labels.shape[0],
        ...(typeof answers === 'number' ? { correct: answers, of: labels.size } : answers),
      }
    },
  }
}

interface Countable {
  readonly size: number
  readonly allLabels: () => Tensor
}

function taped(compute: (outputs: Tensor) => Tensor, outputs: Tensor): Recording {
  return record(compute, outputs, [], { needsInputGradient: true })
}

/** A loss below this value may be a rounding error. */
const TINY = 1e-6

/** The loss and its largest gradient, first for some examples, then with each example repeated. */
type Figures = readonly [a: number, slope: number, b: number, other: number]

/** @returns undefined if the figures are 0 or not finite @throws ERR_TSR_ARGUMENT */
function reductionOf([a, slope, b, other]: Figures): 'mean' | 'sum' | undefined {
  // Ignore non-finite losses here: the training step reports them.
  if (![a, b, slope, other].every(Number.isFinite)) return undefined
  const isZero = Math.abs(a) < TINY
  if (isZero && slope === 0) return undefined
  const times = isZero ? (2 * other) / slope : b / a
  if (Math.abs(times - 1) < 1e-3) return 'mean'
  if (Math.abs(times - 2) < 2e-3) return 'sum'
  throw argumentError(
    'loss',
    `a loss that becomes ${times.toPrecision(4)} times as large for twice the examples`,
    "the mean or the sum over the examples; say which by loss.reduction = 'mean' or 'sum'",
  )
}

const describeResult = (value: unknown) =>
  isTensor(value) ? `a tensor of shape [${value.shape.join(', ')}]` : shown(value)

const reductionRule = choice('mean', 'sum').optional()
const functionRule = callback().optional()
const countRule = where<number>(
  (value) => Number.isFinite(value) && Number(value) >= 0,
  'a number from 0, or a promise of one, for example tensor.dataSync()[0]',
  describeResult,
)
const answersRule = where<number | Answers>(
  (value) =>
    typeof value === 'number' ||
    (!isTensor(value) &&
      typeof (value as Partial<Answers> | null)?.correct === 'number' &&
      typeof (value as Partial<Answers>).of === 'number'),
  'a number, { correct, of }, or a promise of either',
  describeResult,
)
const scalarRule = where<Tensor>(
  (value) => isTensor(value) && value.size === 1,
  'a tensor with one value: the mean or the sum over the examples, not a promise',
  describeResult,
)

/**
 * Like tf.tidy, but accepts functions that return promises. Frees the tensors that `compute`
 * creates before its first await.
 */
function tidied<T>(compute: () => T): T {
  let result: T | undefined
  tf.tidy(() => {
    result = compute()
  })
  return result as T
}
