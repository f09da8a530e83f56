/** The number type of weights, gradients and activations. */
export type PlanDtype = 'float32' | 'bfloat16' | 'float16'

/** The optimizers that a plan can assume. */
export type PlanOptimizer = 'adam' | 'momentum' | 'sgd'

/** How the ranks divide the work. The product dp x tp x pp is the number of ranks. */
export interface RankLayout {
  /** The number of replicas; each one trains on a part of the batch. */
  readonly dp: number
  /** The number of tensor parallel ranks, which share every layer. */
  readonly tp: number
  /** The number of pipeline stages. */
  readonly pp: number
  /** What the replicas shard: 0 nothing, 1 optimizer state, 2 also gradients, 3 also parameters. */
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

/** The bytes of a number of each type. */
export const valueBytes: Readonly<Record<PlanDtype, number>> = {
  float32: 4,
  bfloat16: 2,
  float16: 2,
}

const moments: Readonly<Record<PlanOptimizer, number>> = { adam: 8, momentum: 4, sgd: 0 }

/**
 * Returns the bytes of activations for one example in one transformer layer: with 16-bit numbers
 * s h (10 + 24 / t + 5 a s / (h t)), with float32 twice as much. s is the sequence length, h the
 * width, a the number of heads, and t the number of tensor parallel ranks (Korthikanti et al.,
 * Reducing Activation Recomputation in Large Transformer Models, 2022, equation 2).
 */
function layerActivations(
  { width, heads, sequence }: ModelShape,
  dtype: PlanDtype,
  tp: number,
): number {
  const scores = (5 * heads * sequence) / (width * tp)
  return sequence * width * (10 + 24 / tp + scores) * (valueBytes[dtype] / 2)
}

/**
 * Returns the bytes of weights, gradients, optimizer state and activations of a rank. With 16-bit
 * numbers the optimizer keeps a float32 copy of the weights. ZeRO stage 3 also holds the gathered
 * weights of one layer.
 *
 * @param inFlight - the largest number of micro-batches whose activations a rank holds; each
 *   micro-batch has one example
 */
export function layoutMemory(
  model: ModelShape,
  { dp, tp, pp, zero, recompute }: RankLayout,
  dtype: PlanDtype,
  optimizer: PlanOptimizer,
  inFlight: number,
): LayoutMemory {
  const bytes = valueBytes[dtype]
  const own = model.parameters / (tp * pp)
  const layers = Math.ceil(model.layers / pp)
  const gathered = zero === 3 && dp > 1 ? model.parameters / (tp * model.layers) : 0
  const held = (stage: 1 | 2 | 3) => (zero >= stage ? own / dp : own)
  const master = dtype === 'float32' ? 0 : 4
  const weights = (held(3) + gathered) * bytes
  const gradients = held(2) * bytes
  const states = held(1) * (moments[optimizer] + master)
  const layer = layerActivations(model, dtype, tp)
  const input = model.sequence * model.width * bytes
  const activations = recompute ? inFlight * input + layers * layer : inFlight * layers * layer
  const total = weights + gradients + states + activations
  return { weights, gradients, optimizer: states, activations, total }
}
