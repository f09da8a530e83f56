import { count, declareOptions, filled, positive, type Rules } from '@tsrun/core'
import { fusedPasses, withGradients } from '../autograd/tape.ts'
import type { Differentiable } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import type { Separable } from '../model/module.ts'
import { remembered, type Operation } from '../model/operation.ts'
import type { Parameter } from '../model/parameter.ts'
import { checkInput } from '../model/recording.ts'
import { ones, zeros, type Initializer } from './init.ts'
import { createParameter } from './initialize.ts'

/** Options of `LayerNorm` and `RMSNorm`. */
export interface NormOptions {
  /** The prefix of the names of the parameters: `<name>.weight`, and `<name>.bias` for a LayerNorm. */
  readonly name: string
  /** The length of the last axis. */
  readonly width: number
  /** A small number that is added to the variance; default 1e-5. */
  readonly epsilon?: number
}

const readOptions = declareOptions({
  name: filled('the prefix of the names of its parameters, as in layers.0'),
  width: count({ from: 1 }),
  epsilon: positive().default(1e-5),
} satisfies Rules<NormOptions>)

abstract class Norm<P extends readonly Parameter[]> implements Separable {
  readonly parameters: P
  readonly #epsilon: number

  protected constructor(options: NormOptions, initial: object) {
    const { name, width, epsilon } = readOptions(options)
    this.#epsilon = epsilon
    this.parameters = Object.entries(initial).map(([key, values]) =>
      createParameter(`${name}.${key}`, [width], values as Initializer),
    ) as readonly Parameter[] as P
  }

  isRepeatable(): boolean {
    return true
  }

  operations(): readonly Operation[] {
    const [scale, shift] = this.parameters
    return normalizations(scale!, shift, this.#epsilon)
  }

  /**
   * @param x - [..., width] float32
   * @throws ERR_TSR_ARGUMENT for other inputs
   */
  forward(x: Tensor): Tensor {
    return this.forwardWith(
      this.parameters.map(({ value }) => value),
      x,
    )
  }

  forwardWith([weight, bias]: readonly Tensor[], x: Tensor): Tensor {
    const [parameter] = this.parameters
    checkInput(x, parameter!, ['...', ...parameter!.shape])
    const epsilon = this.#epsilon
    const pass = fusedPasses().normalize ?? plainPass
    const inputs = bias === undefined ? [x, weight!] : [x, weight!, bias]
    return withGradients(inputs, (x, scale, shift?: Tensor) => pass(epsilon, x, scale, shift))
  }
}

const normalizations = remembered(
  (scale: Parameter, shift: Parameter | undefined, epsilon: number): Operation[] => [
    { type: 'normalize', scale, shift, epsilon },
  ],
)

/**
 * Normalizes the last axis to mean 0 and standard deviation 1. Then multiplies by `weight` and adds
 * `bias` (Ba et al., 2016).
 */
export class LayerNorm extends Norm<readonly [weight: Parameter, bias: Parameter]> {
  constructor(options: NormOptions) {
    super(options, { weight: ones, bias: zeros })
  }
}

/** Normalizes the last axis to mean square 1, then multiplies by `weight` (Zhang & Sennrich, 2019). */
export class RMSNorm extends Norm<readonly [weight: Parameter]> {
  constructor(options: NormOptions) {
    super(options, { weight: ones })
  }
}

/**
 * Computes (x - mean) / sqrt(variance + epsilon) over the last axis, times `scale`, plus `shift`, and its
 * gradients. Without `shift`, takes the mean as 0, so that the variance is the mean square.
 */
function plainPass(
  epsilon: number,
  x: Tensor,
  scale: Tensor,
  shift: Tensor | undefined,
): Differentiable {
  const meanOf = (values: Tensor) => tf.mean(values, -1, true)
  const centered = shift === undefined ? x : tf.sub(x, meanOf(x))
  const inverse = tf.rsqrt(tf.add(meanOf(tf.square(centered)), epsilon))
  const normal = tf.mul(centered, inverse)
  const scaled = tf.mul(normal, scale)
  return {
    value: shift === undefined ? scaled : tf.add(scaled, shift),
    saved: [normal, inverse, scale],
    gradients(dy, saved) {
      const [normal, inverse, scale] = saved as [Tensor, Tensor, Tensor]
      const slope = tf.mul(dy, scale)
      const rest = tf.sub(slope, tf.mul(normal, meanOf(tf.mul(slope, normal))))
      const axes = dy.shape.slice(0, -1).map((_, axis) => axis)
      const dScale = tf.sum(tf.mul(dy, normal), axes)
      if (shift === undefined) return [tf.mul(inverse, rest), dScale]
      return [tf.mul(inverse, tf.sub(rest, meanOf(slope))), dScale, tf.sum(dy, axes)]
    },
  }
}
