import { count, declareOptions, finite, positive, filled, type Rules } from '@tsrun/core'
import { isTapeActive, refuseNested, withGradients } from '../../autograd/tape.ts'
import { currentBackend, isHostAccessible } from '../../backend/current.ts'
import { scopedTensor, tensorFrom, viewOf } from '../../backend/host-memory.ts'
import type { Module } from '../../model/module.ts'
import { replaceValue, type Parameter } from '../../model/parameter.ts'
import { currentPass } from '../../model/pass.ts'
import { checkInput } from '../../model/recording.ts'
import { ones, zeros, type Initializer } from '../../nn/init.ts'
import { createParameter } from '../../nn/initialize.ts'
import type { ColumnPasses, Differentiable, Each, TensorBackend } from '../../tfjs/backend.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { checkBackendBlocks } from '../requirements.ts'

/** Options of `BatchNorm`. */
export interface BatchNormOptions {
  /**
   * The prefix of the parameter names `<name>.weight` and `<name>.bias`, and of the buffer names
   * `<name>.running_mean` and `<name>.running_var`.
   */
  readonly name: string
  /** The number of channels, which is the length of the input's last axis. */
  readonly channels: number
  /** A small number that is added to the variance; default 1e-5. */
  readonly epsilon?: number
  /** The weight of a new batch in the running statistics, from 0 to 1; default 0.1. */
  readonly momentum?: number
}

const readOptions = declareOptions({
  name: filled('the prefix of the names of its parameters, as in layers.0'),
  channels: count({ from: 1 }),
  epsilon: positive().default(1e-5),
  momentum: finite({ above: 0, to: 1 }).default(0.1),
} satisfies Rules<BatchNormOptions>)

/**
 * Batch normalization (Ioffe & Szegedy, 2015) over the examples of all replicas, like
 * torch.nn.SyncBatchNorm. Each channel of the last axis is normalized to mean 0 and variance 1,
 * multiplied by `weight` [channels], and shifted by `bias` [channels]. The result equals that of one
 * process with the whole batch.
 *
 * Training passes use the statistics of the micro-batch and update the running statistics. Other passes
 * use the running statistics. A recorded pass counts as a training pass unless `inPass` says otherwise.
 *
 * The `trainer` or pipeline that runs the model sets the replicas. A custom training loop sets them with
 * `inPass` (see `Pass.replicas`). A forward pass gathers the mean and variance of each replica, and
 * a backward pass sums two numbers per channel. Both passes block, and all replicas must run the same passes
 * in the same order. The gradients of `weight` and `bias` cover
 * only this rank's examples; `dataParallel` averages them. On webgpu a pass cannot block, so the layer
 * throws.
 *
 * @example
 * const norm = new BatchNorm({ name: 'layers.1', channels: 64 })
 * recordModule(norm, x, options) // the statistics of the batch
 * norm.forward(x) // evaluation: the running statistics
 */
export class BatchNorm implements Module {
  readonly parameters: readonly [weight: Parameter, bias: Parameter]
  readonly usesPass = true
  readonly communicates = true
  /**
   * The running mean and the unbiased running variance. They are the same on all ranks, saved in
   * checkpoints, and not trained.
   */
  readonly buffers: readonly [runningMean: Parameter, runningVariance: Parameter]
  readonly #options: ReturnType<typeof readOptions>

  /** @throws ERR_TSR_ARGUMENT */
  constructor(options: BatchNormOptions) {
    const complete = readOptions(options)
    const { name, channels } = complete
    this.#options = complete
    const made = (part: string, values: Initializer) =>
      createParameter(`${name}.${part}`, [channels], values)
    this.parameters = [made('weight', ones), made('bias', zeros)]
    this.buffers = [made('running_mean', zeros), made('running_var', ones)]
  }

  /**
   * Normalizes `x`.
   *
   * @param x - [..., channels]; ranks may have different numbers of examples
   * @throws ERR_TSR_ARGUMENT for other inputs; ERR_TSR_BACKEND on webgpu
   */
  forward(x: Tensor): Tensor {
    const [weight, bias] = this.parameters
    checkInput(x, weight, ['...', this.#options.channels])
    const isTraining = currentPass()?.training ?? isTapeActive()
    if (!isTraining) {
      const [mean, variance] = this.buffers
      const scale = tf.mul(tf.rsqrt(tf.add(variance.value, this.#options.epsilon)), weight.value)
      return tf.add(tf.mul(tf.sub(x, mean.value), scale), bias.value)
    }
    refuseNested('a BatchNorm that uses the statistics of the batch')
    checkBackendBlocks()
    return withGradients([x, weight.value, bias.value], (input, factor, shift) =>
      this.#normalize(input, factor, shift),
    )
  }

  #normalize(x: Tensor, weight: Tensor, bias: Tensor): Differentiable {
    const { channels, epsilon, name } = this.#options
    const { isEmpty = false, isRepeated = false, replicas = [] } = currentPass() ?? {}
    if (replicas.length === 0 && !isEmpty && x.size > 0) {
      const pass = currentBackend().batchNorm
      if (pass !== undefined) return this.#normalizeAlone(pass, { x, weight, bias }, !isRepeated)
    }
    let all = isEmpty ? new Float64Array(1 + 2 * channels) : statisticsOf(x, channels)
    for (const group of replicas) {
      const own = all
      all = new Float64Array(own.length * group.size)
      group.allGatherSync(all, own, { label: `${name}, forward` })
    }
    const { mean: center, variance, examples } = combine(all, channels)
    if (!isRepeated && examples > 0) this.#keep(center, variance, examples)
    /** The factor of each channel: 1 / sqrt(variance + epsilon). */
    const inverse = variance.map((value) => 1 / Math.sqrt(value + epsilon))
    const [a, c] = [new Float64Array(channels), Float64Array.from(viewOf(bias))]
    return {
      value: columns().combine(x, x, { a, b: scaled(inverse, weight), c, center }),
      saved: [x, weight],
      gradients(dy, saved) {
        const [x, weight] = saved as [Tensor, Tensor]
        // Rows of an empty micro-batch are placeholders. Leave them out of the sums.
        const own = isEmpty ? new Float64Array(2 * channels) : columns().sums(dy, x, center)
        for (let c = 0; c < channels; c++) own[channels + c]! *= inverse[c]!
        const sums = own.slice()
        for (const group of replicas) group.allReduceSync(sums, { label: `${name}, backward` })
        const a = scaled(inverse, weight)
        const b = a.map((factor, c) => (-factor * inverse[c]! * sums[channels + c]!) / examples)
        const c = a.map((factor, c) => (-factor * sums[c]!) / examples)
        const of = (values: Float64Array) =>
          scopedTensor([channels], (out) => {
            out.set(values)
          })
        return [
          isEmpty ? tf.zerosLike(x) : columns().combine(dy, x, { a, b, c, center }),
          of(own.subarray(channels)),
          of(own.subarray(0, channels)),
        ]
      },
    }
  }

  #normalizeAlone(
    pass: NonNullable<TensorBackend['batchNorm']>,
    inputs: Each<'x' | 'weight' | 'bias', Tensor>,
    keeps: boolean,
  ): Differentiable {
    const [runningMean, runningVariance] = this.buffers
    const { mean, variance, ...operation } = pass(inputs, {
      ...this.#options,
      mean: runningMean.value,
      variance: runningVariance.value,
    })
    if (keeps) {
      replaceValue(runningMean, tf.keep(mean))
      replaceValue(runningVariance, tf.keep(variance))
    }
    return operation
  }

  #keep(mean: Float64Array, variance: Float64Array, examples: number): void {
    const { momentum, channels } = this.#options
    const unbiased = examples / Math.max(1, examples - 1)
    const [runningMean, runningVariance] = this.buffers
    for (const [buffer, values, factor] of [
      [runningMean, mean, 1],
      [runningVariance, variance, unbiased],
    ] as const) {
      const past = viewOf(buffer.value)
      const next = past.map((old, c) => (1 - momentum) * old + momentum * factor * values[c]!)
      replaceValue(buffer, tensorFrom(next, [channels]))
    }
  }
}

/** Returns the number of examples, then the mean of each channel, then its sum of squared deviations. */
function statisticsOf(x: Tensor, channels: number): Float64Array {
  const examples = x.size / channels
  // Sums are in double precision, so centers need not be exact means. Use the first row if readable.
  const centers = new Float64Array(channels)
  if (isHostAccessible()) centers.set(viewOf(x).subarray(0, channels))
  else {
    const sums = columns().sums(x, x, centers)
    for (let c = 0; c < channels; c++) centers[c] = sums[c]! / (examples || 1)
  }
  const sums = columns().sums(x, x, centers)
  const [means, squares] = [sums.slice(0, channels), sums.subarray(channels)]
  for (let c = 0; c < channels && examples > 0; c++) {
    const sum = sums[c]!
    // Do not use the rounded mean here: its error times the sum can exceed a small variance.
    const offset = (sum - examples * centers[c]!) / examples
    // The sums of x (x - mean) and (x - mean)^2 are equal, because the sum of x - mean is 0.
    squares[c]! -= sum * offset
    means[c] = sum / examples
  }
  return Float64Array.of(examples, ...means, ...squares)
}

function scaled(factors: Float64Array, tensor: Tensor): Float64Array {
  const values = viewOf(tensor)
  return factors.map((factor, c) => factor * values[c]!)
}

const columns = (): ColumnPasses => currentBackend().columns ?? hostPasses

const hostPasses: ColumnPasses = {
  sums(y, x, center) {
    const [factors, values] = [viewOf(y), viewOf(x)]
    const { length } = center
    const sums = new Float64Array(2 * length)
    for (let i = 0; i < values.length; i++) {
      const c = i % length
      sums[c]! += factors[i]!
      sums[length + c]! += factors[i]! * (values[i]! - center[c]!)
    }
    return sums
  },

  combine(y, x, { a, b, c, center }) {
    return scopedTensor(x.shape, (out) => {
      const [factors, values] = [viewOf(y), viewOf(x)]
      for (let i = 0; i < out.length; i++) {
        const k = i % center.length
        out[i] = a[k]! * factors[i]! + b[k]! * (values[i]! - center[k]!) + c[k]!
      }
    })
  },
}

/** Combines the statistics of all ranks without numerical cancellation (Chan et al., 1979). */
function combine(all: Float64Array, channels: number) {
  const [mean, variance] = [new Float64Array(channels), new Float64Array(channels)]
  const length = 1 + 2 * channels
  const ranks = Array.from({ length: all.length / length }, (_, rank) =>
    all.subarray(rank * length, (rank + 1) * length),
  )
  const examples = ranks.reduce((sum, [own]) => sum + own!, 0)
  if (examples === 0) return { mean, variance, examples }
  for (let c = 0; c < channels; c++) {
    for (const own of ranks) mean[c]! += (own[0]! / examples) * own[1 + c]!
    for (const own of ranks) {
      variance[c]! += own[1 + channels + c]! + own[0]! * (own[1 + c]! - mean[c]!) ** 2
    }
    variance[c]! /= examples
  }
  return { mean, variance, examples }
}
