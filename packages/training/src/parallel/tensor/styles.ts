import { refuseUnknown, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Embedding } from '../../nn/embedding.ts'
import type { Head } from '../../nn/head.ts'
import type { JointLinear } from '../../nn/joint-linear.ts'
import type { Linear } from '../../nn/linear.ts'
import type { Module, Separable } from '../../model/module.ts'
import {
  ColumnParallelLinear,
  RowParallelLinear,
  type ColumnParallelOptions,
  type RowParallelOptions,
} from './layers.ts'
import type { ParallelPlan } from './parallelize.ts'
import { SequenceParallel } from './sequence.ts'
import {
  VocabParallelEmbedding,
  VocabParallelHead,
  type VocabParallelOptions,
} from './vocabulary.ts'

/**
 * How a layer is shared among the ranks of a group: what takes its place; in a group of one rank the
 * layer itself.
 */
export type ParallelStyle = (layer: Module, group: ProcessGroup, name: string) => Module

const OF_COLUMNS = Object.keys({
  gather: true,
  input: true,
} satisfies Record<keyof ColumnParallelOptions, true>)

const OF_ROWS = Object.keys({
  input: true,
  output: true,
} satisfies Record<keyof RowParallelOptions, true>)

const OF_WORDS = Object.keys({ sequence: true } satisfies Record<keyof VocabParallelOptions, true>)

/**
 * By columns of the weight: every rank has all inputs and some outputs.
 *
 * @throws ERR_TSR_ARGUMENT for an option that there is not
 */
export function columnParallel(options: ColumnParallelOptions = {}): ParallelStyle {
  refuseUnknown(options, OF_COLUMNS)
  return (layer, group, name) => {
    if (!isLinear(layer) && !isJoint(layer)) throw misfit('columnParallel', name, 'a linear layer')
    return group.size === 1 ? layer : new ColumnParallelLinear(layer, { group, name }, options)
  }
}

/**
 * By rows of the weight: every rank has some inputs and, after a sum, all outputs.
 *
 * @throws ERR_TSR_ARGUMENT for an option that there is not
 */
export function rowParallel(options: RowParallelOptions = {}): ParallelStyle {
  refuseUnknown(options, OF_ROWS)
  return (layer, group, name) => {
    if (!isLinear(layer)) throw misfit('rowParallel', name, 'a linear layer')
    return group.size === 1 ? layer : new RowParallelLinear(layer, { group, name }, options)
  }
}

/**
 * By tokens: every rank has some rows of an embedding, or makes the scores of some tokens. Those are
 * never gathered: see `vocabParallelCrossEntropy`.
 *
 * @throws ERR_TSR_ARGUMENT for an option that there is not
 */
export function vocabParallel(options: VocabParallelOptions = {}): ParallelStyle {
  refuseUnknown(options, OF_WORDS)
  return (layer, group, name) => {
    if (!isHead(layer) && !isEmbedding(layer)) {
      throw misfit('vocabParallel', name, 'an Embedding or a Head')
    }
    if (group.size === 1) return layer
    const place = { group, name }
    return isHead(layer)
      ? new VocabParallelHead(layer, place, options)
      : new VocabParallelEmbedding(layer, place, options)
  }
}

/** By positions: every rank has a part of each sequence and all parameters. */
export function sequenceParallel(): ParallelStyle {
  return (layer, group, name) => {
    if (!('forwardWith' in layer)) throw misfit('sequenceParallel', name, 'a norm or positions')
    return group.size === 1 ? layer : new SequenceParallel(layer as Separable, { group, name })
  }
}

/** What makes a style, and is none itself. */
export const styles: readonly unknown[] = [
  ...[columnParallel, rowParallel, vocabParallel, sequenceParallel, gptPlan],
]

export interface GptPlanOptions {
  /**
   * Whether ranks have a part of each sequence only between the shared layers (Korthikanti et al.,
   * 2022): as many bytes in twice the collectives, and the activations there divided by the ranks.
   * The length of sequences has to be a multiple of the ranks. Default false.
   */
  readonly sequence?: boolean
}

const OF_PLANS = Object.keys({ sequence: true } satisfies Record<keyof GptPlanOptions, true>)

/**
 * How a `GPT` is shared: attention by heads, feed-forward networks by hidden units, tokens by rows.
 *
 * @throws ERR_TSR_ARGUMENT for an option that there is not
 */
export function gptPlan(options: GptPlanOptions = {}): ParallelPlan {
  refuseUnknown(options, OF_PLANS)
  const { sequence = false } = options
  const column = columnParallel({ input: sequence ? 'sequence' : 'replicated' })
  const row = rowParallel({ output: sequence ? 'sequence' : 'replicated' })
  const between = sequenceParallel()
  return {
    wte: vocabParallel({ sequence }),
    ...(sequence ? { wpe: between, 'h.*.ln_1': between, 'h.*.ln_2': between, ln_f: between } : {}),
    'h.*.attn.c_attn': column,
    'h.*.attn.c_proj': row,
    'h.*.mlp.c_fc': column,
    'h.*.mlp.c_proj': row,
    lm_head: vocabParallel({ sequence }),
  }
}

const isLinear = (layer: Module): layer is Linear => layer.kind === 'linear'
const isJoint = (layer: Module): layer is JointLinear => layer.kind === 'joint-linear'
const isEmbedding = (layer: Module): layer is Embedding => layer.kind === 'embedding'
const isHead = (layer: Module): layer is Head => layer.kind === 'head'

function misfit(style: string, name: string, expected: string) {
  return tsrError('ERR_TSR_ARGUMENT', {
    name: 'plan',
    value: `${style} for ${name}`,
    expected: `${expected} of that name`,
  })
}
