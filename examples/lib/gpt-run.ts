// What gpt.ts does besides training: it checks its mesh, puts the whole model together, lets it write a
// text, and measures how fast the ranks could be.
import type { ProcessGroup } from '@tsrun/distributed'
import {
  generator,
  replaceValue,
  tensorFrom,
  tf,
  uniform,
  viewOf,
  type Module,
  type Parameter,
} from '@tsrun/training'

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

type Share = Pick<Parameter, 'name' | 'shape' | 'shard'> & { readonly values: Float32Array }

/**
 * Fills the whole model on rank 0 of a group with the parameters of all ranks. Each rank sends its layers
 * and its parts of layers, together with their places in the model.
 *
 * @param model - on rank 0 only
 */
export async function fillWholeModel(
  model: Module | undefined,
  held: readonly Parameter[],
  group: ProcessGroup,
): Promise<void> {
  const own = held.map(({ name, shape, shard, value }): Share => ({
    name,
    shape,
    ...(shard === undefined ? {} : { shard }),
    values: Float32Array.from(viewOf(value)),
  }))
  const all = await group.gatherObject<Share[]>(own, 0)
  if (model === undefined || all === undefined) return
  const shares = all.flat()
  for (const parameter of model.parameters) {
    const { name, shape, value } = parameter
    const values = new Float32Array(value.size)
    for (const share of shares) if (share.name === name) put(values, share)
    replaceValue(parameter, tensorFrom(values, shape))
  }
}

/** Copies a part to its place in the whole parameter. */
function put(whole: Float32Array, { shape, shard, values }: Share): void {
  if (shard === undefined) {
    whole.set(values)
    return
  }
  const inner = shard.shape.slice(shard.axis + 1).reduce((product, length) => product * length, 1)
  const run = shape[shard.axis]! * inner
  const stride = shard.shape[shard.axis]! * inner
  for (let i = 0; i * run < values.length; i++) {
    whole.set(values.subarray(i * run, (i + 1) * run), i * stride + shard.offset * inner)
  }
}

export interface SampleOptions {
  /** The number of tokens that the model sees at once, at most. */
  readonly block: number
  /** The number of bytes to write. */
  readonly length: number
  readonly seed: number
  /** Below 1, likely bytes become more likely. */
  readonly temperature?: number
}

/** Lets a model of bytes continue the prompt, byte after byte. */
export function sampleText(model: Module, prompt: string, options: SampleOptions): string {
  const { block, length, seed, temperature = 0.8 } = options
  const next = generator('sample', seed)
  const bytes = [...Buffer.from(prompt)]
  for (let i = 0; i < length; i++) {
    const seen = bytes.slice(-block)
    const chances = tf.tidy(() => {
      const scores = model.forward(tf.tensor2d([seen], [1, seen.length], 'int32'))
      const last = tf.slice(scores, [0, seen.length - 1, 0], [1, 1, -1])
      return Float32Array.from(viewOf(tf.softmax(tf.div(last, temperature))))
    })
    bytes.push(draw(chances, uniform(next)))
  }
  return Buffer.from(bytes).toString()
}

function draw(chances: Float32Array, at: number): number {
  let sum = 0
  for (const [token, chance] of chances.entries()) {
    sum += chance
    if (at < sum) return token
  }
  return chances.length - 1
}

const SIZE = 256
const MILLISECONDS = 300

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
