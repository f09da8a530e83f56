import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tfjs.ts'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { onRows } from './project.ts'

/** x W' with W [count, width]: as an embedding has it, which may be the same. */
export class Head implements Module {
  readonly kind = 'head'
  readonly weight: Parameter

  constructor(weight: Parameter) {
    this.weight = weight
  }

  get parameters(): readonly Parameter[] {
    return [this.weight]
  }

  /** @param x - [..., width] @returns [..., count] */
  forward(x: Tensor): Tensor {
    return onRows(x, (rows) => tf.matMul(rows, this.weight.value, false, true))
  }
}
