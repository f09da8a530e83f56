// What the lessons 01 to 06 have in common: one network, one seed, the same batches, and a table.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { formatTable, tsrunHome } from '@tsrun/core'
import { batches, mnist, shardedMLP, tf, type ExampleBatch, type Module } from '@tsrun/training'
import { count, integer, positive } from './flags.ts'
import { percent, wrap } from './output.ts'
import { describeUtilisation, type Utilisation } from './utilisation.ts'

const steps = count(8)

/** The flags of all lessons. The same flags give the same losses in each of them. */
export const courseFlags = {
  steps: {
    ...steps,
    // The first step also compiles, so it is not measured.
    expected: 'a whole number from 2',
    read: (text: string) => (text === '1' ? undefined : steps.read(text)),
  },
  // Micro-batches then have 256 rows, so a pass takes much longer than a message.
  batch: count(2048),
  layers: count(16),
  width: count(256),
  // So small that rounding errors, which depend on the order of sums, do not grow from step to step.
  lr: positive(0.0005),
  seed: integer(0),
}

export interface Course {
  readonly steps: number
  readonly batch: number
  readonly layers: number
  readonly width: number
  readonly lr: number
  readonly seed: number
}

/** The network: linear layers with a ReLU between them. */
export function networkOf({ layers, width, seed }: Course): ReturnType<typeof shardedMLP> {
  return shardedMLP({ layers, hidden: width, seed })
}

/**
 * The multiplications of each layer and row, forward and backward. The first layer is wide, but nobody
 * needs the gradient of its input. Stages of equal costs are idle for as long as theory says.
 */
export function costsOf({ layers, width }: Pick<Course, 'layers' | 'width'>): number[] {
  return Array.from({ length: layers }, (_, layer) => {
    const inputs = layer === 0 ? 784 : width
    const outputs = layer === layers - 1 ? 10 : width
    return (layer === 0 ? 2 : 3) * inputs * outputs
  })
}

/** A batch of digits for each step. */
export function* batchesOf({ steps, batch, seed }: Course): Generator<ExampleBatch> {
  const digits = mnist({ split: 'train' })
  for (let left = steps, epoch = 0; ; epoch++) {
    for (const examples of batches(digits, { batch, seed, epoch, dropLast: true })) {
      if (left-- === 0) return
      yield examples
    }
  }
}

/** What the table has of a lesson. */
export interface Lesson {
  readonly name: string
  readonly ranks: number
  /** Of each step. */
  readonly losses: readonly number[]
  /** The median time of a step. */
  readonly milliseconds: number
  /** Of each rank. */
  readonly utilisation: readonly Utilisation[]
  /** What `heldBytes` returns, of the rank that held most. */
  readonly bytes: number
  /** The share of the step in which the ranks do not compute, as it was measured. */
  readonly idle?: number
  /** What the schedule promises with a core for each rank. */
  readonly ideal?: number
  /** The same with the cores of this machine. */
  readonly shared?: number
  /** The flags that change how it ran but not what it computes, such as `--overlap off`. */
  readonly variant?: string
}

/** A lesson in the file, newest first. */
interface KeptLesson extends Lesson {
  /** The network, the batches and the backend. Lessons of the same key are comparable. */
  readonly key: string
}

/** Those that the table keeps. */
const kept = ['01 monolith', '02 split', '04 naive', '05 gpipe', '06 1f1b']
/** Of all keys. */
const MOST_KEPT = 200

const columns = ['lesson', 'ranks', 'loss', 'step ms', 'used', 'idle', 'shared', 'ideal', 'MiB']

/**
 * Prints the losses, the utilisation, and the table of the lessons that ran with the same flags on the same
 * backend. The lessons are kept in the folder for tsrun's files. The table has those without a variant and
 * those of the same variant.
 *
 * @throws Error if the losses differ from those of another lesson
 */
export function endLesson(course: Course, lesson: Lesson): void {
  const key = JSON.stringify({ course, columns, backend: tf.getBackend() })
  const file = join(tsrunHome(), 'course.json')
  const { variant: own = '' } = lesson
  const id = ({ name, ranks, variant = '' }: Lesson): string => [name, ranks, variant].join(' ')
  const others = readLessons(file).filter((each) => each.key !== key || id(each) !== id(lesson))
  const lessons = [lesson, ...others.filter((each) => each.key === key)]
    .filter(({ variant = '' }) => variant === '' || variant === own)
    .sort((a, b) => (id(a) < id(b) ? -1 : 1))

  const shown = lesson.losses.map((loss) => loss.toFixed(5)).join(' ')
  console.log(
    `\n${wrap(shown, 'loss of each step: ')}\n${describeUtilisation(lesson.utilisation)}\n`,
  )
  const share = (value?: number): string => (value === undefined ? '' : percent(value, 0))
  const rows = lessons.map((each) => [
    `${each.name}${(each.variant ?? '') === '' ? '' : '*'}`,
    String(each.ranks),
    each.losses.at(-1)!.toFixed(5),
    each.milliseconds.toFixed(1),
    ...[usedOf(each), each.idle, each.shared, each.ideal].map(share),
    mebibytes(each.bytes),
  ])
  console.log(formatTable([columns, ...rows], 'right').join('\n'))
  if (own !== '') console.log(wrap(`with ${own}`, '* '))

  const difference = Math.max(...lessons.map((each) => differenceOf(each, lesson)))
  console.log(`\nThe losses differ by at most ${difference.toExponential(1)} of their size.`)
  const isSame = isEqual(course, difference)
  if (kept.includes(lesson.name)) {
    const left = isSame ? others : others.filter((each) => each.key !== key)
    mkdirSync(tsrunHome(), { recursive: true })
    const all = [{ ...lesson, key }, ...left].slice(0, MOST_KEPT)
    writeFileSync(file, JSON.stringify({ lessons: all }))
  }
  if (!isSame) throw new Error('The lessons do not train alike. Run those of the table again.')
}

/**
 * The most bytes of float32 values that a rank holds at once: its parameters, their gradients, and for
 * each row in flight the input of its layers and the output of each. Digits that are still to be read and
 * the temporary values of a pass are not counted.
 *
 * @param rows - the most rows in flight, of all micro-batches together
 */
export function heldBytes({ parameters }: Pick<Module, 'parameters'>, rows: number): number {
  const shapes = parameters.map(({ shape }) => shape)
  const values = shapes.reduce((sum, shape) => sum + shape.reduce((a, b) => a * b, 1), 0)
  const inputs = shapes.find((shape) => shape.length === 2)![0]!
  const outputs = shapes.reduce((sum, shape) => sum + (shape.length === 1 ? shape[0]! : 0), 0)
  return Float32Array.BYTES_PER_ELEMENT * (2 * values + rows * (inputs + outputs))
}

/** `12.5` */
export function mebibytes(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(1)
}

/** The share of its device that a rank used, as a mean over the ranks. */
function usedOf({ utilisation, ranks }: Lesson): number {
  return utilisation.reduce((sum, { mean }) => sum + mean, 0) / ranks
}

/** Whether losses are equal but for rounding. Larger steps, and more of them, let rounding errors grow. */
export function isEqual({ lr, steps }: Course, difference: number): boolean {
  const mayGrow = lr > courseFlags.lr.fallback || steps > courseFlags.steps.fallback
  return mayGrow || difference < 1e-5
}

/** The largest difference of the losses of a step, as a share of the loss. */
export function differenceOf(
  { losses: own }: Pick<Lesson, 'losses'>,
  { losses: other }: Pick<Lesson, 'losses'>,
): number {
  if (own.length !== other.length) return Infinity
  return Math.max(...own.map((loss, step) => Math.abs(loss - other[step]!) / loss))
}

function readLessons(file: string): KeptLesson[] {
  try {
    const { lessons } = JSON.parse(readFileSync(file, 'utf8')) as { lessons: KeptLesson[] }
    return lessons
  } catch {
    return []
  }
}
