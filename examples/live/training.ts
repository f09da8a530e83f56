import type { ProcessGroup } from '@tsrun/distributed'
import {
  pipeline,
  SGD,
  shardedMLP,
  StepMeter,
  tensorFrom,
  tf,
  type Batch,
  type Tensor,
} from '@tsrun/training'
import {
  schedule,
  type ActionKind,
  type Schedule,
  type ScheduleName,
  type SimulationOptions,
} from '@tsrun/training/planning'
import { bytesTime, type LinkCosts } from './collective.ts'

const LAYERS = 16
const HIDDEN = 256
const PIXELS = 28 * 28
/** Examples of a batch: the same for all schedules, so that they train alike. */
const BATCH = 256
/** Milliseconds of a pass that the clock of the page is too coarse to measure. */
const SHORTEST = 0.001

/** The lessons of the course, and the schedules that follow them. */
export const lessons = {
  naive: '04 · naive',
  gpipe: '05 · GPipe',
  '1f1b': '06 · 1F1B',
  interleaved: 'interleaved 1F1B',
  'zb-h1': 'zero bubble (ZB-H1)',
} as const satisfies Partial<Record<ScheduleName, string>>

export type LessonName = keyof typeof lessons

export interface Layout {
  readonly lesson: LessonName
  readonly ranks: number
  readonly microbatches: number
}

/** Images of 28 x 28 bytes, and the digit of each. */
export interface Digits {
  readonly pixels: Uint8Array
  readonly labels: Uint8Array
}

export interface DigitSets {
  readonly training: Digits
  readonly test: Digits
}

/** The mean milliseconds of an action, by kind and stage. */
export type Durations = Readonly<Record<ActionKind, readonly number[]>>

export interface TrainedStep {
  /** From 1. */
  readonly step: number
  readonly loss: number
  readonly milliseconds: number
  readonly durations: Durations
  /** The largest number of micro-batches whose activations a rank held, by rank. */
  readonly held: readonly number[]
  /** The digit that the network sees in each image of the test set. */
  readonly seen: readonly number[]
}

/** What a rank tells of a step: the time of each of its actions. */
interface OwnStep {
  readonly times: readonly { kind: ActionKind; stage: number; milliseconds: number }[]
  readonly held: number
}

export function scheduleOf({ lesson, ranks, microbatches }: Layout): Schedule {
  const stages = lesson === 'interleaved' ? 2 * ranks : ranks
  return schedule(lesson, { stages, ranks, microbatches })
}

/** What a pipeline on the page's clock takes: durations that were measured, and links as they are set. */
export function simulationOf(
  { microbatches }: Layout,
  { F, B, I, W }: Durations,
  costs: LinkCosts,
): SimulationOptions & { readonly transfer: number } {
  const bytes = Math.ceil(BATCH / microbatches) * HIDDEN * Float32Array.BYTES_PER_ELEMENT
  return {
    forward: F,
    backward: B,
    inputGradient: I,
    weightGradient: W,
    transfer: costs.latency + bytesTime(bytes, costs),
  }
}

/** Durations for another layout: the whole work of a batch, divided equally. */
export function scaleDurations(durations: Durations, from: Layout, to: Layout): Durations {
  const stages = scheduleOf(to).stages
  const whole = (kinds: readonly ActionKind[]): number =>
    from.microbatches *
    kinds.flatMap((kind) => durations[kind]).reduce((sum, duration) => sum + duration, 0)
  const equally = (work: number): number[] =>
    new Array<number>(stages).fill(work / stages / to.microbatches)
  const backward = whole(['B', 'I', 'W'])
  return {
    F: equally(whole(['F'])),
    B: equally(backward),
    I: equally(backward / 2),
    W: equally(backward / 2),
  }
}

/**
 * The program of a rank: trains the network of the lessons in a pipeline. After each step, rank 0 calls
 * `onStep`, which decides whether another one follows.
 */
export async function trainRank(
  group: ProcessGroup,
  { lesson, microbatches }: Layout,
  { training, test }: DigitSets,
  onStep: (step: TrainedStep) => Promise<boolean>,
): Promise<void> {
  // The lessons have no momentum and a tenth of this rate, with which 20 steps would show little.
  const optimizer = new SGD({ learningRate: 0.005, momentum: 0.9 })
  const model = shardedMLP({ layers: LAYERS, hidden: HIDDEN, seed: 0 })
  const pipe = pipeline(model, group, { schedule: lesson, microbatches, optimizer })
  const meter = new StepMeter(pipe.recorder)
  const sums = new DurationSums()
  const images = inputsOf(test, 0, test.labels.length)
  try {
    for (let step = 1; ; step++) {
      const start = performance.now()
      const { loss, peakInFlight } = await meter.time(() => pipe.step(batchOf(training, step)))
      const milliseconds = performance.now() - start
      const times = meter.lastSpans.flatMap(({ kind, stage, start, end }) =>
        isAction(kind) ? [{ kind, stage: stage!, milliseconds: end - start }] : [],
      )
      const ranks = await group.allGatherObject<OwnStep>({ times, held: peakInFlight })
      const seen = await pipe.infer(images, digitsOf)
      let goesOn = false
      if (group.rank === 0) {
        // The first step also compiles.
        if (step === 2) sums.clear()
        for (const { times } of ranks) for (const time of times) sums.add(time)
        const held = ranks.map((rank) => rank.held)
        goesOn = await onStep({ step, loss, milliseconds, durations: sums.means(), held, seen })
      }
      if (!(await group.broadcastObject(goesOn, 0))) return
    }
  } finally {
    images.dispose()
    pipe.dispose()
  }
}

/** Sums the times of actions, by kind and stage. */
class DurationSums {
  readonly #sums: Record<ActionKind, { time: number; count: number }[]> = empty()

  add({ kind, stage, milliseconds }: OwnStep['times'][number]): void {
    const sum = (this.#sums[kind][stage] ??= { time: 0, count: 0 })
    sum.time += milliseconds
    sum.count++
  }

  clear(): void {
    Object.assign(this.#sums, empty())
  }

  /** Kinds that the schedule does not have are 0 in each stage. */
  means(): Durations {
    const { F, B, I, W } = this.#sums
    const meansOf = (sums: readonly ({ time: number; count: number } | undefined)[]): number[] =>
      F.map((_, stage) => {
        const sum = sums[stage]
        return sum === undefined ? 0 : Math.max(SHORTEST, sum.time / sum.count)
      })
    return { F: meansOf(F), B: meansOf(B), I: meansOf(I), W: meansOf(W) }
  }
}

function empty(): Record<ActionKind, { time: number; count: number }[]> {
  return { F: [], B: [], I: [], W: [] }
}

function isAction(kind: string): kind is ActionKind {
  return kind === 'F' || kind === 'B' || kind === 'I' || kind === 'W'
}

/** The batch of a step. After the last image, the first follows. */
function batchOf(digits: Digits, step: number): Batch {
  const { length } = digits.labels
  const first = (step - 1) * BATCH
  const labels = Int32Array.from(
    { length: BATCH },
    (_, row) => digits.labels[(first + row) % length]!,
  )
  return {
    size: BATCH,
    inputs: () => inputsOf(digits, first, BATCH),
    labels: () => tensorFrom(labels, [BATCH], 'int32'),
  }
}

/** Pixels with mean 0 and standard deviation 1, as in the lessons: [count, 784]. */
function inputsOf({ pixels, labels }: Digits, first: number, count: number): Tensor {
  const inputs = new Float32Array(count * PIXELS)
  for (let row = 0; row < count; row++) {
    const from = ((first + row) % labels.length) * PIXELS
    for (let pixel = 0; pixel < PIXELS; pixel++) {
      inputs[row * PIXELS + pixel] = (pixels[from + pixel]! / 255 - 0.1307) / 0.3081
    }
  }
  return tensorFrom(inputs, [count, PIXELS])
}

/** The class with the highest score of each row. */
function digitsOf(scores: Tensor): number[] {
  return tf.tidy(() => [...tf.argMax(scores, 1).dataSync()])
}
