import type { ScheduleName } from '@tsrun/training/planning'

export interface Configuration {
  readonly title: string
  readonly schedule: ScheduleName
  readonly stages: number
  readonly microbatches: number
  readonly batch: number
  readonly layers: number
  /** Stages of each rank. */
  readonly chunks?: number
}

const usual = { batch: 16, layers: 6 }

/** Every schedule at every number of stages and micro-batches, all of which must train alike. */
const product = (['naive', 'gpipe', '1f1b', 'zb-h1'] as const).flatMap((schedule) =>
  [2, 3, 4].flatMap((stages) =>
    [1, 2, 4, 8].map((microbatches): Configuration => ({
      title: `${schedule}, ${stages} stages, ${microbatches} micro-batches`,
      schedule,
      stages,
      microbatches,
      ...usual,
    })),
  ),
)

/** Several stages a rank, also where micro-batches do not divide by the ranks. */
const interleaved = [1, 2, 3].flatMap((ranks) =>
  [
    { chunks: 2, microbatches: 4 },
    { chunks: 2, microbatches: 6 },
    { chunks: 3, microbatches: 3 },
    { chunks: 3, microbatches: 1 },
  ].map((each): Configuration => ({
    title: `interleaved, ${ranks} ranks, ${each.chunks} chunks, ${each.microbatches} micro-batches`,
    schedule: 'interleaved',
    stages: ranks,
    batch: 16,
    layers: 10,
    ...each,
  })),
)

const looped = [
  { stages: 1, chunks: 3, microbatches: 2 },
  { stages: 2, chunks: 2, microbatches: 4 },
  { stages: 3, chunks: 2, microbatches: 5 },
  { stages: 3, chunks: 3, microbatches: 2 },
].map((each): Configuration => ({
  title: `looped, ${each.stages} ranks, ${each.chunks} chunks, ${each.microbatches} micro-batches`,
  schedule: 'looped',
  batch: 16,
  layers: 10,
  ...each,
}))

/** Two stages a rank in a V, and zero bubble with several chunks; also with too few micro-batches. */
const zeroBubble = (['interleaved-zb', 'zb-v', 'dualpipe-v'] as const).flatMap((schedule) =>
  [
    { stages: 1, microbatches: 2 },
    { stages: 2, microbatches: 1 },
    { stages: 2, microbatches: 4 },
    { stages: 3, microbatches: 7 },
    { stages: 4, microbatches: 8 },
  ].map((each): Configuration => ({
    title: `${schedule}, ${each.stages} ranks, ${each.microbatches} micro-batches`,
    schedule,
    batch: 16,
    layers: 10,
    chunks: 2,
    ...each,
  })),
)

/** The list of layouts that are held against the single process. */
export const configurations: readonly Configuration[] = [
  ...product,
  ...interleaved,
  ...looped,
  ...zeroBubble,
  { title: 'one rank', schedule: '1f1b', stages: 1, microbatches: 4, ...usual },
  {
    title: 'batch not divisible',
    schedule: '1f1b',
    stages: 3,
    microbatches: 4,
    batch: 15,
    layers: 6,
  },
  {
    title: 'batch not divisible, gpipe',
    schedule: 'gpipe',
    stages: 2,
    microbatches: 8,
    batch: 11,
    layers: 6,
  },
  {
    title: 'fewer examples than micro-batches',
    schedule: '1f1b',
    stages: 2,
    microbatches: 8,
    batch: 3,
    layers: 6,
  },
  {
    title: 'fewer micro-batches than stages',
    schedule: '1f1b',
    stages: 6,
    microbatches: 3,
    ...usual,
  },
  {
    title: 'layers not divisible',
    schedule: 'gpipe',
    stages: 4,
    microbatches: 4,
    batch: 16,
    layers: 7,
  },
  {
    title: 'one layer a stage',
    schedule: '1f1b',
    stages: 4,
    microbatches: 8,
    batch: 16,
    layers: 4,
  },
]

const isUsual = ({ schedule, stages, microbatches, chunks }: Configuration): boolean =>
  chunks === undefined
    ? (microbatches === 4 && stages % 2 === 0) || schedule === '1f1b'
    : stages === 2 && microbatches >= 4

/** Each schedule with four micro-batches, and every shape of 1F1B. */
export const usualConfigurations = configurations.filter(isUsual)
