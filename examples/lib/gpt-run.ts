// What gpt.ts does besides training: it checks its mesh, and measures how fast the ranks could be.
import type { ProcessGroup } from '@tsrun/distributed'
import { tf, type Tensor } from '@tsrun/training'
import { ranksThatDivide } from './stages.ts'

interface Sizes {
  readonly dp: number
  readonly pp: number
  readonly tp: number
  readonly cp: number
  readonly between: 'replicated' | 'sequence'
  readonly batch: number
  readonly block: number
  readonly layers: number
  readonly heads: number
  readonly width: number
}

/** A message about the first size that does not fit the mesh; undefined if all fit. */
export function meshProblem(sizes: Sizes, ranks: number): string | undefined {
  const { dp, pp, tp, cp, between, batch, block, layers, heads, width } = sizes
  const places = dp * pp * cp * tp
  const perRank = block / cp
  const checks: readonly (readonly [isGood: boolean, problem: string])[] = [
    [
      places === ranks,
      `a mesh of dp ${dp}, pp ${pp}, cp ${cp} and tp ${tp} has ${places} places, but the job has ${ranks} ranks`,
    ],
    [
      batch % dp === 0,
      `--batch ${batch} does not divide by ${dp} replicas: start it with --nproc ` +
        `${(ranks / dp) * ranksThatDivide([batch], dp)}`,
    ],
    [pp <= layers, `--layers ${layers} are too few for --pp ${pp} stages`],
    [width % heads === 0, `--width ${width} does not divide by --heads ${heads}`],
    [heads % tp === 0, `--heads ${heads} do not divide by --tp ${tp} ranks`],
    [
      cp === 1 || block % (2 * cp) === 0,
      `--block ${block} does not divide by ${2 * cp}, two chunks for each of --cp ${cp} ranks`,
    ],
    [
      between === 'replicated' || perRank % tp === 0,
      `${perRank} positions per rank do not divide by --tp ${tp}, which --between sequence requires`,
    ],
  ]
  return checks.find(([isGood]) => !isGood)?.[1]
}

const MILLISECONDS = 100
/** Below which matrices are too small to tell the speed. */
const FEW_MILLISECONDS = 20
const PRODUCTS = 10

/**
 * The floating-point operations per second that all ranks together reach in matrix products on their
 * backend, at the same time. It is the highest rate that a training step could reach on these devices.
 */
export async function measurePeak(group: ProcessGroup): Promise<number> {
  let size = 256
  // A GPU needs large matrices to be busy.
  while (size < 4096 && (await timeOf(size)) < FEW_MILLISECONDS) size *= 2
  await group.barrier()
  let [time, count] = [0, 0]
  for (; time < MILLISECONDS; count += PRODUCTS) time += await timeOf(size)
  const rate = Float64Array.of((count * 2 * size ** 3 * 1000) / time)
  await group.allReduce(rate)
  return rate[0]!
}

/** The milliseconds of some products of matrices, with the wait for the last one. */
async function timeOf(size: number): Promise<number> {
  const a = tf.randomUniform([size, size])
  await valueOf(a)
  const begin = performance.now()
  let product = tf.matMul(a, a)
  for (let i = 1; i < PRODUCTS; i++) {
    product.dispose()
    product = tf.matMul(a, a)
  }
  await valueOf(product)
  const time = performance.now() - begin
  tf.dispose([a, product])
  return time
}

/** Waits until a matrix is there, without fetching all of it. */
async function valueOf(matrix: Tensor): Promise<void> {
  const corner = tf.slice(matrix, [0, 0], [1, 1])
  await corner.data()
  corner.dispose()
}
