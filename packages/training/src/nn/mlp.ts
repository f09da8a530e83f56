import type { Tensor } from '@tensorflow/tfjs-core'
import { gelu } from './gelu.ts'
import { Linear } from './linear.ts'
import { parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'

export interface FeedForwardOptions {
  /** Prefix of the parameters' names: `<name>.c_fc.weight` and so on. */
  readonly name: string
  readonly width: number
  /** Default 4 x width. */
  readonly hidden?: number
  readonly seed?: number
  /** Of the initial weights; default 0.02. */
  readonly deviation?: number
  /** Of those that lead back to the residual stream; default `deviation`. */
  readonly outputDeviation?: number
}

/** Two linear layers with a GELU between them, with the names of GPT-2. */
export class FeedForward implements Module {
  readonly children: Record<'c_fc' | 'c_proj', Module>

  constructor(options: FeedForwardOptions) {
    const { name, width, hidden = 4 * width, seed = 0, deviation = 0.02 } = options
    const { outputDeviation = deviation } = options
    const up = { name: `${name}.c_fc`, inputs: width, outputs: hidden, seed, deviation }
    const down = { name: `${name}.c_proj`, inputs: hidden, outputs: width, seed }
    this.children = {
      c_fc: new Linear(up),
      c_proj: new Linear({ ...down, deviation: outputDeviation }),
    }
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  /** @param x - [..., width] */
  forward(x: Tensor): Tensor {
    const { c_fc: up, c_proj: down } = this.children
    return down.forward(gelu(up.forward(x)))
  }
}
