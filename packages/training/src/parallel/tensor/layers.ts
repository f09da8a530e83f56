import type { ProcessGroup } from '@tsrun/distributed'
import { refuseNested, withLazyGradients } from '../../autograd/tape.ts'
import { scopedTensorFrom } from '../../backend/host-memory.ts'
import { ofKind, type Module, type Separable } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { LocalSegment } from '../../model/recording.ts'
import { activate } from '../../nn/activations.ts'
import { markPartial } from '../../nn/cross-entropy.ts'
import {
  checkIds,
  hasPositions,
  lookUp,
  type Embedding,
  type Head,
  type Positions,
} from '../../nn/embedding.ts'
import { onRows, type JointLinear, type Linear } from '../../nn/linear.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { runWhile, sum } from './collectives.ts'
import {
  copyToRanks,
  exchange,
  gatherSequence,
  operations,
  scatterSequence,
  sumOverRanks,
  through,
  type LayerSegment,
} from './operations.ts'
import { inOnePiece } from './record-segments.ts'
import { shardOf } from './sharding.ts'

/** Options of `columnParallel`. */
export interface ColumnParallelOptions {
  /**
   * Whether the output columns of all ranks are gathered: `none` (default) leaves them sharded. Use
   * `partial` if a columnParallel() layer follows directly, and `replicated` before any other
   * layer. See `gatherPartial` and `gatherReplicated`.
   */
  readonly gather?: 'none' | 'replicated' | 'partial'
  /**
   * The layer's input: the whole input on every rank (`replicated`, default), or this rank's part
   * of each sequence (`sequence`).
   */
  readonly input?: 'replicated' | 'sequence'
}

export interface LayerContext {
  /** The name of the layer, for error messages. */
  readonly name: string
  readonly group: ProcessGroup
}

export type ColumnParallelLinear = ReturnType<typeof columnParallelLinear>

/**
 * A column parallel linear layer: each rank computes some of the outputs, with the columns [inputs,
 * ..., outputs / size] of the weight.
 */
export function columnParallelLinear(
  layer: Linear | JointLinear,
  { group, name }: LayerContext,
  { gather, input }: Required<ColumnParallelOptions>,
) {
  const { activation } = layer
  const grain = 'grain' in layer ? layer.grain : 1
  const shard = (whole: Parameter) => shardOf(whole, group, whole.shape.length - 1, { grain })
  const weight = shard(layer.weight)
  const bias = layer.bias && shard(layer.bias)
  const parameters = present(weight, bias)
  const isSequence = input === 'sequence'
  const gradientLabel = `${name}: gradient of the input`
  /** Whether the previous layer gathers with `partial`, and so sums this layer's input gradient. */
  let isBehindPartial = false

  /**
   * An uncut layer sums its input gradient over the ranks while it computes the weight gradient. In a cut
   * layer, this sum is a separate segment before the product.
   */
  const describe = (form: 'in one piece' | 'cut'): readonly LayerSegment[] => {
    // A gather of sequences sums the input gradient, and so does a previous layer that gathers with `partial`.
    const isSummed = isBehindPartial || isSequence
    const isCopied = !isSummed && form === 'cut'
    const compute = (x: Tensor) => {
      const matrix = tf.reshape(weight.value, [weight.shape[0]!, -1])
      const y =
        isSummed || isCopied
          ? tf.matMul(x, matrix)
          : multiplyAndSum(x, matrix, group, gradientLabel)
      const shifted = bias ? tf.add(y, tf.reshape(bias.value, [-1])) : y
      return activate(activation, shifted)
    }
    const local: LocalSegment = { parameters, forward: (x) => onRows(x, compute) }
    return [
      ...(isSequence ? [exchange(operations.gatherSequence, group, `${name}: input`)] : []),
      ...(isCopied ? [exchange(operations.copyToRanks, group, name, gradientLabel)] : []),
      ...(gather === 'none'
        ? [{ ...local, forward: (x: Tensor) => markPartial(local.forward(x)) }]
        : [local, exchange(operations[GATHERS[gather]], group, `${name}: output`)]),
    ]
  }
  return {
    kind: 'column-parallel' as const,
    parameters,
    gather,
    input,
    followPartial() {
      isBehindPartial = true
    },
    /**
     * @param x - [..., inputs], the same on all ranks; or, with `sequence`, [batch, length / size,
     *   inputs]
     */
    forward: (x: Tensor) => through(describe('in one piece'), x),
    segments: () => describe('cut'),
  }
}

function present(...parameters: readonly (Parameter | undefined)[]): readonly Parameter[] {
  return parameters.filter((parameter) => parameter !== undefined)
}

const GATHERS = { replicated: 'gatherReplicated', partial: 'gatherPartial' } as const

export const isColumnParallel = ofKind<ColumnParallelLinear>('column-parallel')

/** Options of `rowParallel`. */
export interface RowParallelOptions {
  /**
   * The layer's output: the whole output on every rank (`replicated`, default), or this rank's part
   * of each sequence (`sequence`).
   */
  readonly output?: 'replicated' | 'sequence'
}

/**
 * A row parallel linear layer: each rank multiplies some of the inputs with the rows [inputs /
 * size, outputs] of the weight. The products are summed over the ranks.
 */
export function rowParallelLinear(
  layer: Linear,
  { group, name }: LayerContext,
  { output }: Required<RowParallelOptions>,
): Module {
  const { activation, bias } = layer
  const weight = shardOf(layer.weight, group, 0)
  const isSequence = output === 'sequence'
  const leave = isSequence ? operations.scatterSequence : operations.sumOverRanks
  const describe = (): readonly LayerSegment[] => [
    {
      parameters: [weight],
      forward: (x) => onRows(x, (rows) => tf.matMul(rows, weight.value)),
    },
    exchange(leave, group, `${name}: output`),
    {
      // Add the bias, which is the same on all ranks, after the products are summed.
      parameters: present(bias),
      forward: (x) => {
        if (bias === undefined) return activate(activation, x)
        // Each rank adds the bias only at its own positions, so the gradient must be summed over the ranks.
        const seen = isSequence ? copyToRanks(bias.value, group, `${name}.bias`) : bias.value
        return activate(activation, tf.add(x, seen))
      },
    },
  ]
  const module: Module = {
    parameters: present(weight, bias),
    /** @param x - this rank's columns: [..., inputs / size] */
    forward: (x) => through(describe(), x),
    // The gradient of the bias is summed inside the pass, so the layer cannot be cut into segments.
    segments: () => (isSequence ? inOnePiece(module, name) : describe()),
  }
  return module
}

/**
 * Computes x W. In the backward pass, the gradient of x, if it is needed, is summed over the ranks while the
 * gradient of W is computed.
 */
function multiplyAndSum(x: Tensor, w: Tensor, group: ProcessGroup, label: string) {
  refuseNested('a tensor parallel layer')
  return withLazyGradients(
    { x, w },
    {
      forward: () => tf.matMul(x, w),
      gradients: (dy, saved) => {
        const ofWeight = () => tf.matMul(saved.x, dy, true, false)
        let early: Tensor | undefined
        return {
          x: () => {
            const part = tf.matMul(dy, saved.w, false, true)
            const { value, result } = runWhile(sum, part, group, label, ofWeight)
            early = result
            return value
          },
          // Compute the gradient of W again if tf.grads has disposed the first result.
          w: () => (early === undefined || early.isDisposed ? ofWeight() : early),
        }
      },
    },
  )
}

/** Options of `vocabParallel`. */
export interface VocabParallelOptions {
  /**
   * Whether to use sequence parallelism: an embedding returns this rank's part of each sequence, and an
   * output head takes such a part. Default false.
   */
  readonly sequence?: boolean
}

/**
 * A vocabulary parallel embedding: each rank has the table rows of some tokens, and looks up zeros for the
 * others. The results are summed over the ranks.
 */
export function vocabParallelEmbedding(
  { weight: table }: Embedding,
  { group, name }: LayerContext,
  { sequence }: Required<VocabParallelOptions>,
): Module {
  const weight = shardOf(table, group, 0, { isUneven: true })
  const leave = sequence ? scatterSequence : sumOverRanks
  const module: Module = {
    parameters: [weight],
    segments: () => inOnePiece(module, name),
    /** @param ids - int32 [batch, length], the same on all ranks */
    forward(ids) {
      checkIds(ids, weight)
      const offset = weight.shard?.offset ?? 0
      const places = Int32Array.from(ids.dataSync<'int32'>(), (id) => id - offset)
      const isHere = (place: number) => place >= 0 && place < weight.shape[0]!
      const own = scopedTensorFrom(
        places.map((place) => (isHere(place) ? place : 0)),
        ids.shape,
        'int32',
      )
      /** 1 for tokens of this rank, 0 for others. */
      const here = scopedTensorFrom(
        Float32Array.from(places, (place) => Number(isHere(place))),
        [...ids.shape, 1],
      )
      return leave(tf.mul(lookUp(weight.value, own), here), group, `${name}: output`)
    },
  }
  return module
}

/** A vocabulary parallel output head: each rank computes the scores of its tokens, [..., tokens of this rank]. */
export interface VocabParallelHead extends Module {
  readonly kind: 'vocab-parallel-head'
  /**
   * Gathers the scores of the whole vocabulary on all ranks, for generation. Losses use the parts.
   *
   * @param part - the output of `forward` at one position: [tokens of this rank]
   */
  wholeScores(part: Float32Array): Promise<Float32Array>
}

export function vocabParallelHead(
  { weight: table }: Head,
  { group, name }: LayerContext,
  { sequence }: Required<VocabParallelOptions>,
): VocabParallelHead {
  const weight = shardOf(table, group, 0, { isUneven: true })
  const enter = sequence ? gatherSequence : copyToRanks
  const module: VocabParallelHead = {
    kind: 'vocab-parallel-head',
    parameters: [weight],
    segments: () => inOnePiece(module, name),
    forward(x) {
      const whole = enter(x, group, `${name}: input`)
      return markPartial(onRows(whole, (rows) => tf.matMul(rows, weight.value, false, true)))
    },
    async wholeScores(part) {
      const { shard, shape } = weight
      const all = new Float32Array(shard?.shape[0] ?? shape[0]!)
      all.set(part, shard?.offset ?? 0)
      // The parts may have different sizes, so use all-reduce. Adding zeros is exact.
      await group.allReduce(all, { label: `${name}: scores` })
      return all
    },
  }
  return module
}

/** Whether a module is an output head whose vocabulary the ranks share. */
export const isVocabParallelHead = ofKind<VocabParallelHead>('vocab-parallel-head')

export type SequenceParallel = ReturnType<typeof sequenceParallelLayer>

/**
 * A sequence parallel layer: runs a layer, such as a norm between tensor parallel layers, on this
 * rank's part of each sequence. All ranks have the same parameters. Parameter gradients are summed
 * over the ranks, because each rank sees only some positions.
 */
export function sequenceParallelLayer(layer: Separable, { group, name }: LayerContext) {
  if (hasPositions(layer)) layer.positions = partOf(layer.positions, group)
  const module = {
    kind: 'sequence-parallel' as const,
    /** The layer that runs on this rank's part of each sequence. */
    layer,
    /** The number of ranks that share each sequence. */
    ranks: group.size,
    get parameters() {
      return layer.parameters
    },
    segments: () => inOnePiece(module, name),
    /** Runs the layer. @param x - [batch, length / size, width] */
    forward(x: Tensor) {
      const values = layer.parameters.map((parameter) =>
        copyToRanks(parameter.value, group, parameter.name),
      )
      return layer.forwardWith(values, x)
    },
  }
  return module
}

/** Whether a module computes on a part of each sequence. */
export const isSequenceParallel = ofKind<SequenceParallel>('sequence-parallel')

/** Maps positions in this rank's part of a sequence to positions in the whole sequence. */
export function partOf(positions: Positions, { rank, size }: ProcessGroup): Positions {
  return (length) => positions(length * size).subarray(rank * length, (rank + 1) * length)
}
