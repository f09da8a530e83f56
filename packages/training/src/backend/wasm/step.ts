import type { GradientListener } from '../../model/recording.ts'

/** An operation y = f(x) on all rows, whose values are at addresses. */
export interface Step {
  /** The number of values of y in a row. */
  readonly width: number
  /** The number of values that the backward pass needs besides x and y. */
  readonly kept: number
  /** For the first step of a residual branch: the index of the step after the branch. */
  end?: number
  /** For the last step of a residual branch: the index of the first. */
  begin?: number
  /** Whether y is the output of a ReLU. */
  readonly isRectified?: boolean
  /** Whether `backward` applies `BackwardOptions.mask`. */
  readonly masks?: boolean
  /** @param residual - the address of values that are added to the result; 0: none */
  forward(y: number, x: number, kept: number, residual: number): void
  /** Writes the gradient of what the activation is applied to; `dz` may be `dy`. Absent without activation. */
  readonly beforeActivation?:
    ((dz: number, dy: number, y: number, kept: number) => void) | undefined
  /** Writes the gradient of x. Returns a function that reports the gradients of parameters. */
  backward(dx: number, dz: number, x: number, kept: number, options: BackwardOptions): Report
}

interface BackwardOptions {
  /** Whether the gradient of x is needed. */
  readonly isNeeded: boolean
  /** The address of values that are added to the gradient of x; 0: none. */
  readonly residual: number
  /** If x is the output of a ReLU, its address, to make the gradient 0 where x is 0; otherwise 0. */
  readonly mask: number
}

export type Report = (onGradient: GradientListener) => void
