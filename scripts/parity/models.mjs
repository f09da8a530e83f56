import { gpt, gptPlan } from '@tsrun/models'
import {
  columnParallel,
  replaceValue,
  rowParallel,
  shardedMLP,
  tf,
  zigzagPositions,
} from '@tsrun/training'

/**
 * @typedef {import('@tsrun/training').Module} Module
 * @typedef {import('@tsrun/training').PipelineModel} PipelineModel
 * @typedef {import('@tsrun/training').ParallelPlan} ParallelPlan
 * @typedef {import('@tsrun/training').Tensor} Tensor
 * @typedef {import('@tsrun/distributed').ProcessGroup} ProcessGroup
 *
 * @typedef {object} Problem
 * @property {number} examples - in a batch
 * @property {() => Module} build - the whole model
 * @property {PipelineModel} recipe - the same model in parts
 * @property {(sequence: boolean) => ParallelPlan} plan - how ranks share the layers
 * @property {number} boundary - values that one example has between two stages
 * @property {(share: number, isFirst: boolean, isLast: boolean) => number} [tensorCollectives] -
 *   collectives for a micro-batch in a share of the layers, among the ranks that share these
 * @property {(step: number, from: number, to: number, context?: ProcessGroup) => { inputs: () => Tensor, labels: () => Tensor }} batch -
 *   examples [from, to) of a step, or this rank's part of their sequences in context parallelism
 */

const MLP = { layers: 8, inputs: 12, hidden: 16, outputs: 8, seed: 5 }
const GPT = { vocabulary: 24, block: 8, layers: 4, heads: 4, width: 16, seed: 3 }
const EXAMPLES = 16

/** @type {Readonly<Record<import('./configurations.mjs').ModelName, Problem>>} */
const problems = {
  mlp: {
    examples: EXAMPLES,
    boundary: MLP.hidden,
    // A pair of layers sums its output, and the gradient of its input if a layer before it needs that.
    tensorCollectives: (share, isFirst) => MLP.layers * share - (isFirst ? 1 : 0),
    build: () => shardedMLP(MLP).slice(0, MLP.layers),
    recipe: shardedMLP(MLP),
    plan: () =>
      Object.fromEntries(
        Array.from({ length: MLP.layers }, (_, i) => [
          `layers.${i}`,
          i % 2 === 0 ? columnParallel() : rowParallel(),
        ]),
      ),
    batch: (step, from, to) => {
      const value = (/** @type {number} */ i) => Math.sin(1 + i * 12.9898 + step * 37.719)
      const rows = (/** @type {(row: number) => unknown} */ of) =>
        Array.from({ length: to - from }, (_, i) => of(from + i))
      const features = rows((row) =>
        Array.from({ length: MLP.inputs }, (_, i) => value(row * MLP.inputs + i)),
      )
      return {
        inputs: () => tf.tensor2d(/** @type {number[][]} */ (features)),
        labels: () =>
          tf.tensor1d(
            /** @type {number[]} */ (rows((row) => (row * 5 + step) % MLP.outputs)),
            'int32',
          ),
      }
    },
  },
  gpt: gptProblem({ tied: false }),
}

/**
 * @param {import('./configurations.mjs').ModelName} model
 * @param {boolean} [isTied] - whether the embedding and the head share their table
 * @returns {Problem}
 */
export function problemOf(model, isTied = false) {
  return isTied ? gptProblem({ tied: true }) : problems[model]
}

/**
 * @param {{ tied: boolean }} options
 * @returns {Problem}
 */
function gptProblem({ tied }) {
  const recipe = gpt({ ...GPT, tied })
  return {
    examples: EXAMPLES,
    boundary: GPT.block * GPT.width,
    // As in Megatron-LM: forward and backward of the attention and of the MLP. The rows of the tables add
    // those of the embedding, of the input of the head, and two (the maximum and the sum) for the loss.
    tensorCollectives: (share, isFirst, isLast) =>
      4 * GPT.layers * share + (isFirst ? 1 : 0) + (isLast ? 3 : 0),
    build: () => enlarge(recipe.build()),
    recipe: { layers: GPT.layers, slice: (from, to) => enlarge(recipe.slice(from, to)) },
    plan: (sequence) => gptPlan({ sequence }),
    batch: (step, from, to, context) => {
      const token = (/** @type {number} */ i) =>
        (i * i + 3 * i + 7 * step + (i % 5)) % GPT.vocabulary
      const all = Array.from({ length: GPT.block }, (_, i) => i)
      const positions =
        context === undefined || context.size === 1 ? all : zigzagPositions(GPT.block, context)
      const { length } = positions
      const tokens = (/** @type {number} */ shift) =>
        Int32Array.from({ length: (to - from) * length }, (_, i) => {
          const row = from + Math.floor(i / length)
          return token(row * GPT.block + /** @type {number} */ (positions[i % length]) + shift)
        })
      const shape = /** @type {[number, number]} */ ([to - from, length])
      return {
        inputs: () => tf.tensor2d(tokens(0), shape, 'int32'),
        labels: () => tf.tensor2d(tokens(1), shape, 'int32'),
      }
    },
  }
}

/**
 * Makes the weights so large that every part of the model matters for the gradients.
 *
 * @template {Module} M
 * @param {M} model
 * @returns {M}
 */
function enlarge(model) {
  for (const parameter of model.parameters) {
    const { name, value } = parameter
    const factor = /ln_\w+\.weight/.test(name) ? 1 : 4
    const next = tf.tidy(() => {
      const wave = tf.sin(tf.reshape(tf.range(0, value.size), value.shape))
      return tf.keep(tf.add(tf.mul(value, factor), tf.mul(wave, 0.1)))
    })
    replaceValue(parameter, next)
  }
  return model
}
