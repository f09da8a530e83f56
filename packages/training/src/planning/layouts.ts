import { argumentError, choice, count, declareOptions, finite, positive } from '@tsrun/core'
import { schedule } from '../parallel/pipeline/schedule/schedule.ts'

/** Options of `planLayouts`. */
export interface PlanOptions {
  /** The number of trained values in the model. */
  readonly parameters: number
  /** The memory of one rank, in bytes. */
  readonly memory: number
  readonly ranks: number
  /** The number of transformer layers; default: parameters / (12 width^2). */
  readonly layers?: number
  /**
   * The length of a hidden vector. Default with `layers`: sqrt(parameters / (12 layers)). Default without
   * `layers`: chosen so that width / layers is about 128.
   */
  readonly width?: number
  /** The number of attention heads; default: width / 128. */
  readonly heads?: number
  /** The number of tokens in an example; default 2048. */
  readonly sequence?: number
  /** The number of examples in a step, over all replicas; default: 4 per rank. */
  readonly batch?: number
  /** The optimizer to plan for; default `adam`. */
  readonly optimizer?: PlanOptimizer
  /** Floating-point operations per second that a rank reaches in training; default 10^13. */
  readonly flops?: number
  /** Bytes per second that a rank sends to another; default 10^10. */
  readonly link?: number
  /** Latency of a message in seconds; default 10^-5. */
  readonly latency?: number
}

/** A layout, with its memory per rank and its predicted times. */
export interface PlannedLayout extends RankLayout {
  readonly memory: LayoutMemory
  readonly fits: boolean
  /** The duration of a training step in seconds. */
  readonly step: number
  /** The fraction of time that ranks wait in the pipeline, averaged over all ranks. */
  readonly bubble: number
  /** Seconds to exchange gradients and sharded parameters, without any overlap with computation. */
  readonly exchange: number
  /** The largest number of micro-batches whose activations a rank holds at once. */
  readonly inFlight: number
}

/** The result of `planLayouts`. */
export interface LayoutPlan {
  readonly model: ModelShape
  /** The number of examples in a step, over all replicas. */
  readonly batch: number
  /**
   * All layouts. Layouts that fit in memory come first, in order of increasing step time. The others
   * follow, in order of increasing memory.
   */
  readonly layouts: readonly PlannedLayout[]
  /** The layout with the shortest step among those that fit in memory; undefined if none fits. */
  readonly best: PlannedLayout | undefined
}

const MOST_STAGES = 32

const whole = count({ from: 1 })

const readOptions = declareOptions({
  parameters: positive(),
  memory: positive(),
  ranks: count({ from: 1, to: 4096 }),
  layers: whole.optional(),
  width: whole.optional(),
  heads: whole.optional(),
  sequence: whole.default(2048),
  batch: whole.optional(),
  optimizer: choice('adam', 'momentum', 'sgd').default('adam'),
  flops: positive().default(1e13),
  link: positive().default(1e10),
  latency: finite({ from: 0 }).default(1e-5),
})

/**
 * Computes memory and step time for every layout dp x tp x pp of a transformer over the ranks. Each
 * layout is planned with each stage of ZeRO, with and without recomputation. Step times come from
 * the schedule simulator.
 *
 * The estimate leaves out the framework's own memory, collective buffers, embeddings and logits. It
 * assumes that communication does not overlap with computation.
 *
 * @example
 * const { best } = planLayouts({ parameters: 10e9, memory: 24e9, ranks: 16 })
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function planLayouts(options: PlanOptions): LayoutPlan {
  const given = readOptions(options)
  const { memory: room, ranks, optimizer, batch = 4 * ranks } = given
  const model = shapeOf(given)
  const layouts = divisionsOf(ranks, model, batch).flatMap((division) => {
    const { dp, tp, pp, recompute } = division
    const examples = batch / dp
    const { makespan, bubble, inFlight } = pipelineTime(model, division, examples, given)
    const shared = ringTime(dp, (BYTES * model.parameters) / (tp * pp), given)
    return zeroLevels(division).map((zero) => {
      const layout = { dp, tp, pp, zero, recompute }
      // ZeRO stage 3 also gathers the parameters for each pass of each micro-batch, forward and backward.
      const exchange = zero === 3 ? shared / 2 + examples * shared : shared
      const memory = layoutMemory(model, layout, optimizer, inFlight)
      const fits = memory.total <= room
      return { ...layout, step: makespan + exchange, bubble, exchange, inFlight, memory, fits }
    })
  })
  layouts.sort((a, b) => {
    if (a.fits !== b.fits) return a.fits ? -1 : 1
    return a.fits ? a.step - b.step : a.memory.total - b.memory.total
  })
  return { model, batch, layouts, best: layouts[0]?.fits === true ? layouts[0] : undefined }
}

function shapeOf(given: ReturnType<typeof readOptions>): ModelShape {
  const { parameters, sequence } = given
  // A transformer has about 12 layers width^2 parameters. If neither `layers` nor `width` is given,
  // assume width = 128 layers.
  const rough =
    given.layers === undefined
      ? Math.cbrt((parameters * 128) / 12)
      : Math.sqrt(parameters / (12 * given.layers))
  const width = given.width ?? roundWidth(rough)
  const layers = given.layers ?? Math.max(1, Math.round(parameters / (12 * width ** 2)))
  const heads = given.heads ?? Math.max(1, Math.round(width / 128))
  if (width % heads === 0) return { parameters, layers, width, heads, sequence }
  throw argumentError('heads', heads, `a divisor of the width, ${width}`)
}

function roundWidth(width: number) {
  const unit = width >= 4096 ? 1024 : width >= 1024 ? 256 : width >= 128 ? 64 : 1
  return Math.max(1, unit * Math.round(width / unit))
}

type Division = Omit<RankLayout, 'zero'>

function divisionsOf(ranks: number, { layers, heads }: ModelShape, batch: number): Division[] {
  return divisors(ranks).flatMap((dp) =>
    divisors(ranks / dp).flatMap((tp) => {
      const pp = ranks / dp / tp
      if (batch % dp !== 0 || heads % tp !== 0 || pp > Math.min(layers, MOST_STAGES)) return []
      // With one pipeline stage, each backward pass follows its forward pass at once, so recomputation
      // saves nothing.
      return (pp === 1 ? [false] : [false, true]).map((recompute) => ({ dp, tp, pp, recompute }))
    }),
  )
}

function zeroLevels({ dp, pp }: Division): RankLayout['zero'][] {
  // A single replica cannot shard its state. ZeRO stage 3 is not planned for several pipeline stages.
  if (dp === 1) return [0]
  return pp === 1 ? [0, 1, 2, 3] : [0, 1, 2]
}

function divisors(of: number) {
  return Array.from({ length: of }, (_, index) => index + 1).filter((each) => of % each === 0)
}

/** The optimizers that a plan can assume. */
export type PlanOptimizer = 'adam' | 'momentum' | 'sgd'

/** A division of the work among the ranks. The product dp x tp x pp is the number of ranks. */
export interface RankLayout {
  /** The number of replicas; each one trains on a part of the batch. */
  readonly dp: number
  /** The number of tensor parallel ranks, which share every layer. */
  readonly tp: number
  /** The number of pipeline stages. */
  readonly pp: number
  /** The ZeRO stage: 0 shards nothing, 1 optimizer state, 2 also gradients, 3 also parameters. */
  readonly zero: 0 | 1 | 2 | 3
  /** Whether a stage keeps only its inputs and repeats the forward pass before the backward pass. */
  readonly recompute: boolean
}

/** The dimensions of a transformer. */
export interface ModelShape {
  readonly parameters: number
  readonly layers: number
  /** The length of a hidden vector. */
  readonly width: number
  readonly heads: number
  /** The number of tokens in an example. */
  readonly sequence: number
}

/** The bytes of state and activations on the rank that holds the most. */
export interface LayoutMemory {
  readonly weights: number
  readonly gradients: number
  readonly optimizer: number
  readonly activations: number
  readonly total: number
}

/** The bytes of a float32. */
const BYTES = 4

/** The bytes of optimizer state per value of the model. */
const moments: Readonly<Record<PlanOptimizer, number>> = { adam: 8, momentum: 4, sgd: 0 }

/**
 * Returns the bytes of weights, gradients, optimizer state and activations of a rank. ZeRO stage 3 also
 * holds the gathered weights of one layer.
 *
 * The activations of one example in one transformer layer take 2 s h (10 + 24 / t + 5 a s / (h t))
 * bytes. s is the sequence length, h the width, a the number of heads, and t the number of tensor
 * parallel ranks (Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models,
 * 2022, equation 2, which is for 16-bit numbers).
 * `inFlight` is the largest number of micro-batches whose activations a rank holds; each has one example.
 */
function layoutMemory(
  model: ModelShape,
  { dp, tp, pp, zero, recompute }: RankLayout,
  optimizer: PlanOptimizer,
  inFlight: number,
): LayoutMemory {
  const own = model.parameters / (tp * pp)
  const layers = Math.ceil(model.layers / pp)
  const gathered = zero === 3 && dp > 1 ? model.parameters / (tp * model.layers) : 0
  const held = (stage: 1 | 2 | 3) => (zero >= stage ? own / dp : own)
  const weights = (held(3) + gathered) * BYTES
  const gradients = held(2) * BYTES
  const states = held(1) * moments[optimizer]
  const { width, heads, sequence } = model
  const scores = (5 * heads * sequence) / (width * tp)
  const layer = 2 * sequence * width * (10 + 24 / tp + scores)
  const input = sequence * width * BYTES
  const activations = recompute ? inFlight * input + layers * layer : inFlight * layers * layer
  const total = weights + gradients + states + activations
  return { weights, gradients, optimizer: states, activations, total }
}

/** The speed of the ranks and of the links between them. */
type Hardware = Pick<ReturnType<typeof readOptions>, 'flops' | 'link' | 'latency'>

/** The number of micro-batches per stage after which a pipeline is in its steady state. */
const ROUNDS = 3

/**
 * Simulates all micro-batches of a step with the 1F1B schedule and one example per micro-batch. A forward
 * pass takes 2 operations per parameter and token, and 4 L h s^2 for the two matrix products of attention
 * (L layers, h width, s sequence length). A backward pass takes twice as many operations. Recomputation
 * adds one forward pass. In each pass, two outputs per tensor parallel layer are summed in rings of 2 (t
 * - 1) messages, with t ranks.
 */
function pipelineTime(
  model: ModelShape,
  { tp, pp, recompute }: Division,
  examples: number,
  { flops, link, latency }: Hardware,
) {
  const { parameters, layers, width, sequence } = model
  const boundary = sequence * width * BYTES
  const operations = 2 * parameters * sequence + 4 * layers * width * sequence ** 2
  const sums = 2 * (layers / pp) * ringTime(tp, boundary, { link, latency })
  const forward = operations / (tp * pp * flops) + sums
  const backward = 2 * forward + (recompute ? forward : 0)
  const transfer = pp === 1 ? 0 : latency + boundary / link
  const simulate = (microbatches: number) =>
    schedule('1f1b', { stages: pp, microbatches }).simulate({ forward, backward, transfer })
  const simulated = Math.min(examples, ROUNDS * pp)
  const { makespan: first, ranks } = simulate(simulated)
  const more = examples - simulated
  // With slow messages, micro-batches leave the pipeline in groups of `pp`.
  const each = more === 0 ? 0 : (first - simulate(simulated - pp).makespan) / pp
  const makespan = first + more * each
  const bubble = Math.max(0, 1 - (examples * (forward + backward)) / makespan)
  return { makespan, bubble, inFlight: Math.max(...ranks.map(({ peakInFlight }) => peakInFlight)) }
}

function ringTime(ranks: number, bytes: number, { link, latency }: Omit<Hardware, 'flops'>) {
  return 2 * (ranks - 1) * (latency + bytes / ranks / link)
}

/**
 * Returns the layouts of a plan as table rows; the first row has the headings. Sizes are in decimal
 * gigabytes.
 *
 * @param most - the largest number of layout rows
 */
export function planTable({ layouts, best }: LayoutPlan, most = layouts.length): string[][] {
  const rows = layouts.slice(0, most).map((each) => rowOf(each, each === best))
  return [[...headings], ...rows]
}

const headings = [
  'dp',
  'tp',
  'pp',
  'ZeRO',
  're',
  'weights',
  'grads',
  'optim',
  'activ',
  'GB',
  'bubble',
  'step',
  '',
]

function rowOf(layout: PlannedLayout, isBest: boolean) {
  const { dp, tp, pp, zero, recompute, memory, fits, bubble, step } = layout
  const { weights, gradients, optimizer, activations, total } = memory
  return [
    ...[dp, tp, pp].map(String),
    zero === 0 ? '-' : String(zero),
    recompute ? 'yes' : '-',
    ...[weights, gradients, optimizer, activations, total].map((bytes) => short(bytes / 1e9)),
    `${(100 * bubble).toFixed(0)} %`,
    seconds(step),
    isBest ? 'best' : fits ? 'fits' : 'no',
  ]
}

function short(value: number) {
  return value >= 99.5 ? value.toFixed(0) : value >= 9.95 ? value.toFixed(1) : value.toFixed(2)
}

function seconds(value: number) {
  return value >= 1 ? `${short(value)} s` : `${short(1000 * value)} ms`
}
