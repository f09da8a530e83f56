// The network of Stanford's CS336, lecture "Parallelism 2": a deep MLP of square weight matrices without
// bias, with a GELU after each, whose loss is the mean square of its outputs.
//
//   y = gelu(... gelu(gelu(x W0) W1) ...)        x [rows, width], W [width, width]
//
// The lecture draws the same normal values for every layer. Here the values are uniform, with the same
// standard deviation, and depend on the name of the matrix: every rank of every layout starts with the
// same numbers, and a program in PyTorch can draw them too (test/fixtures/lecture/golden.py).

import type { ProcessGroup } from '@tsrun/distributed'
import { generator, tf, uniform, type Parameter, type Tensor } from '@tsrun/training'
import { count, endWith, jobFlags } from '../lib/flags.ts'
import { printResult } from '../lib/output.ts'

/** The flags that all programs of the lecture have. */
export const sizeFlags = {
  layers: count(4),
  width: count(1024),
  rows: count(128),
  steps: count(2),
  ...jobFlags(),
}

/** Divides exactly, or ends the program with a message. @param name - of the flag that has `whole` */
export function divide(name: string, whole: number, by: number): number {
  if (whole % by !== 0) endWith(`--${name} ${whole} does not divide by ${by}`)
  return whole / by
}

/** The inputs [rows, width], of mean 0 and standard deviation 1. */
export function inputs(rows: number, width: number): Tensor {
  return tf.tensor(uniformValues('inputs', rows * width, 1), [rows, width])
}

/** The weights of a layer [width, width], of mean 0 and standard deviation 1 / sqrt(width). */
export function weights(layer: number, width: number): Tensor {
  const values = uniformValues(nameOf(layer), width * width, 1 / Math.sqrt(width))
  return tf.tensor(values, [width, width])
}

/** A parameter: a tensor that is trained, under a name. */
export function parameter(layer: number, value: Tensor): Parameter {
  return { name: nameOf(layer), shape: value.shape, value }
}

function nameOf(layer: number): string {
  return `layers.${layer}.weight`
}

function uniformValues(name: string, length: number, deviation: number): Float32Array {
  const next = generator(name, 0)
  const limit = Math.sqrt(3) * deviation
  return Float32Array.from({ length }, () => (2 * uniform(next) - 1) * limit)
}

/** One layer: gelu(x W), where gelu(x) = x / 2 (1 + erf(x / sqrt(2))). */
export function layer(x: Tensor, weight: Tensor): Tensor {
  const h = tf.matMul(x, weight)
  return tf.mul(tf.mul(h, 0.5), tf.add(tf.erf(tf.mul(h, Math.SQRT1_2)), 1))
}

/**
 * The loss: a scalar. The mean of the means of the rows, because the wasm backend adds up values one after
 * the other in float32: in one sum of 128 x 1024 of them, the fifth digit would be wrong.
 */
export function meanSquare(y: Tensor): Tensor {
  return tf.mean(tf.mean(tf.square(y), 1))
}

/** Numbers that differ if tensors differ. */
export interface Digest {
  readonly shape: readonly number[]
  readonly first: number
  readonly sum: number
  /** The square root of the sum of squares. */
  readonly norm: number
}

export async function digestOf(tensor: Tensor): Promise<Digest> {
  const values = await tensor.data()
  let [sum, squares] = [0, 0]
  for (const value of values) {
    sum += value
    squares += value * value
  }
  return { shape: tensor.shape, first: values[0]!, sum, norm: Math.sqrt(squares) }
}

/** `1024x1024[0.0167 ...] norm 32.0056` */
export function show({ shape, first, norm }: Digest): string {
  return `${shape.join('x')}[${first.toFixed(4)} ...] norm ${norm.toFixed(4)}`
}

/** What a rank has at the end. */
export interface Outcome {
  /** Of each step; empty on ranks that do not see it. */
  readonly losses: readonly number[]
  /** Of the last step, after the last layer of the rank. */
  readonly activations: Digest
  /** After the last step. */
  readonly parameters: readonly Digest[]
}

/** Prints the result of all ranks, in figures that a test compares with PyTorch's. */
export async function printOutcomes(
  group: ProcessGroup,
  own: Outcome,
  more: Readonly<Record<string, number | boolean>> = {},
): Promise<void> {
  const all = await group.gatherObject(own, 0)
  if (all === undefined) return
  const numbers = ({ first, sum, norm }: Digest): number[] => [first, sum, norm]
  const figures = {
    ranks: group.size,
    ...more,
    losses: all.map(({ losses }) => losses),
    activations: all.map(({ activations }) => numbers(activations)),
    parameters: all.map(({ parameters }) => parameters.map(numbers)),
  }
  printResult(figures, 8)
}
