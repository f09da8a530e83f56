import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { valuesAtHand } from '../backend/host-memory.ts'
import { tf } from '../backend/tfjs.ts'
import { createParameter, uniformValues } from './initialize.ts'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'

export interface EmbeddingOptions {
  /** Prefix of the parameter's name: `<name>.weight`. */
  readonly name: string
  /** How many different things there are. */
  readonly count: number
  /** Numbers for each. */
  readonly width: number
  /** Initial values depend on it and on the parameter's name alone; default 0. */
  readonly seed?: number
  /** Of the initial values; default 0.02. */
  readonly deviation?: number
}

/** A row of a table [count, width] for each number. */
export class Embedding implements Module {
  readonly kind: 'embedding' | 'positions' = 'embedding'
  readonly weight: Parameter

  constructor({ name, count, width, seed = 0, deviation = 0.02 }: EmbeddingOptions) {
    this.weight = tableParameter(`${name}.weight`, [count, width], seed, deviation)
  }

  get parameters(): readonly Parameter[] {
    return [this.weight]
  }

  /**
   * @param ids - int32 [...], each in [0, count)
   * @returns [..., width]
   * @throws ERR_TSR_ARGUMENT
   */
  forward(ids: Tensor): Tensor {
    checkIds(ids, this.weight)
    return lookUp(this.weight.value, ids)
  }
}

/** Rows of a table for ids of any shape; differentiable in the table. */
export function lookUp(table: Tensor, ids: Tensor): Tensor {
  const rows = tf.gather(table, tf.reshape(ids, [-1]))
  return tf.reshape(rows, [...ids.shape, table.shape[1]!])
}

/** @throws ERR_TSR_ARGUMENT unless they are int32 and, where they can be seen, rows of the table */
export function checkIds(ids: Tensor, { name, shape, shard }: Parameter): void {
  const count = (shard?.shape ?? shape)[0]!
  const wrong =
    ids.dtype === 'int32' ? valuesAtHand(ids)?.find((id) => !(id >= 0 && id < count)) : ids.dtype
  if (wrong === undefined) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: `an input of ${name}`,
    value: wrong,
    expected: `int32 from 0 to ${String(count - 1)}`,
  })
}

export function tableParameter(
  name: string,
  shape: readonly [number, number],
  seed: number,
  deviation: number,
): Parameter {
  const values = uniformValues(name, seed, shape[0] * shape[1], Math.sqrt(3) * deviation)
  return createParameter(name, shape, values)
}
