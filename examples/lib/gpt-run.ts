// What gpt.ts does besides training: it checks its mesh, and measures how fast the ranks could be.
import type { ProcessGroup } from '@tsrun/distributed'
import { tf } from '@tsrun/training'

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
    [batch % dp === 0, `--batch ${batch} does not divide by ${dp} replicas`],
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

const SIZE = 256
const MILLISECONDS = 100

/**
 * The floating-point operations per second that all ranks together reach in matrix products on their
 * backend, at the same time. It is the highest rate that a training step could reach on these cores.
 */
export async function measurePeak(group: ProcessGroup): Promise<number> {
  const [a, b] = [tf.randomUniform([SIZE, SIZE]), tf.randomUniform([SIZE, SIZE])]
  const multiply = (): void => {
    const product = tf.matMul(a, b)
    product.dataSync()
    product.dispose()
  }
  multiply()
  await group.barrier()
  const begin = performance.now()
  let count = 0
  for (; performance.now() - begin < MILLISECONDS; count++) multiply()
  const rate = Float64Array.of((count * 2 * SIZE ** 3 * 1000) / (performance.now() - begin))
  await group.allReduce(rate)
  tf.dispose([a, b])
  return rate[0]!
}
