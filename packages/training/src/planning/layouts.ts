import { argumentError, choice, count, declareOptions, finite, positive } from '@tsrun/core'
import {
  layoutMemory,
  type RankLayout,
  type LayoutMemory,
  type ModelShape,
  type PlanDtype,
  type PlanOptimizer,
} from './memory.ts'
import { exchangeTime, pipelineTime, type PipelineTime, type StepTime } from './step-time.ts'

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
  /** The number type to plan for; default float32. Training itself always uses float32. */
  readonly dtype?: PlanDtype
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
export interface PlannedLayout extends RankLayout, StepTime {
  readonly memory: LayoutMemory
  readonly fits: boolean
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
  dtype: choice('float32', 'bfloat16', 'float16').default('float32'),
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
  const { memory: room, ranks, dtype, optimizer, batch = 4 * ranks } = given
  const model = shapeOf(given)
  const times = new Map<string, PipelineTime>()
  const layouts = layoutsOf(ranks, model, batch).map((layout) => {
    const { dp, tp, pp, recompute } = layout
    const examples = batch / dp
    const key = [dp, tp, pp, recompute].join()
    const time = times.get(key) ?? pipelineTime(model, layout, examples, dtype, given)
    times.set(key, time)
    const { makespan, bubble, inFlight } = time
    const exchange = exchangeTime(model, layout, examples, dtype, given)
    const memory = layoutMemory(model, layout, dtype, optimizer, inFlight)
    const fits = memory.total <= room
    return { ...layout, step: makespan + exchange, bubble, exchange, inFlight, memory, fits }
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

function roundWidth(width: number): number {
  const unit = width >= 4096 ? 1024 : width >= 1024 ? 256 : width >= 128 ? 64 : 1
  return Math.max(1, unit * Math.round(width / unit))
}

function layoutsOf(ranks: number, { layers, heads }: ModelShape, batch: number): RankLayout[] {
  return divisors(ranks).flatMap((dp) =>
    divisors(ranks / dp).flatMap((tp) => {
      const pp = ranks / dp / tp
      if (batch % dp !== 0 || heads % tp !== 0 || pp > Math.min(layers, MOST_STAGES)) return []
      // One replica has nothing to share, and ZeRO stage 3 is not planned for several pipeline stages.
      const end = dp === 1 ? 1 : pp === 1 ? 4 : 3
      return ([0, 1, 2, 3] as const).slice(0, end).flatMap((zero) =>
        // With one pipeline stage, each backward pass follows its forward pass at once, so
        // recomputation saves nothing.
        (pp === 1 ? [false] : [false, true]).map((recompute) => ({
          dp,
          tp,
          pp,
          zero,
          recompute,
        })),
      )
    }),
  )
}

function divisors(of: number): number[] {
  return Array.from({ length: of }, (_, index) => index + 1).filter((each) => of % each === 0)
}
