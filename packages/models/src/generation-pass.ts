import { argumentError } from '@tsrun/core'
import {
  type CausalSelfAttention,
  type Module,
  type PositionEmbedding,
  type Positions,
  type Tensor,
  tf,
} from '@tsrun/training'
import {
  causalAttention,
  hasPositions,
  inOrder,
  isAttention,
  currentBackend,
  isSequenceParallel,
  isVocabParallelHead,
  modulesOf,
} from '@tsrun/training/parts'
import { keyValueCaches } from './caches.ts'
import { isGPT, type GPT } from './gpt.ts'

const generating = new WeakSet<Module>()

/**
 * Prepares the modules of a rank for generation. Attention caches keys and values, position
 * embeddings continue after the previous call, and scores are computed only for the last position.
 * `end` restores the modules.
 *
 * @param keeps - whether to cache keys and values; if not, each input is a whole sequence
 * @param longest - the largest number of input tokens; default: the positions of the modules
 * @throws ERR_TSR_ARGUMENT if a text is being generated with one of the modules, or `longest` exceeds
 *   their positions
 */
export function startGeneration(modules: readonly Module[], keeps: boolean, longest?: number) {
  const all = modules.flatMap((root) => [
    root,
    ...Array.from(modulesOf(root), (each) => each.module),
  ])
  if (all.some((module) => generating.has(module))) {
    throw argumentError('model', 'one that generates a text', 'a model after its generate() ends')
  }
  const shared = all.filter(isSequenceParallel)
  const undo: (() => void)[] = []
  const most = Math.min(...all.map(blockOf))
  const block = longest ?? most
  if (block > most) {
    throw argumentError('block', block, `at most ${most}, the number of positions of the model`)
  }
  const caches = keeps ? keyValueCaches(block) : undefined
  /** The number of positions computed so far, without the padding of the last input. */
  let computed = 0

  const replace = <T, K extends keyof T>(owner: T, key: K, value: T[K]) => {
    const original = owner[key]
    owner[key] = value
    undo.push(() => {
      owner[key] = original
    })
  }
  const replaceCore = (module: CausalSelfAttention) => {
    if (caches !== undefined) replace(module, 'core', caches.core())
    // Without a cache, each context parallel rank computes the whole sequence.
    else if (module.core.dividesSequences === true) replace(module, 'core', causalAttention)
  }
  const replacePositions = (module: PositionEmbedding, positions: Positions) => {
    const last = module.weight.shape[0]! - 1
    // Give all padding positions the last valid index, because they may lie beyond the table.
    replace(module, 'positions', (length) =>
      positions(length).map((position) => Math.min(position + computed, last)),
    )
  }
  const shortenHead = ({ children }: GPT) => {
    const { lm_head: head } = children
    if (head === undefined) return
    const forward = (x: Tensor) => head.forward(lastPosition(x))
    replace(children, 'lm_head', { parameters: head.parameters, forward })
  }
  const repeats = currentBackend().repeat !== undefined
  for (const module of modules) {
    if (caches !== undefined && repeats && isGPT(module)) undo.push(caches.repeat(module))
  }
  for (const module of all) {
    if (isAttention(module)) replaceCore(module)
    else if (hasPositions(module)) replacePositions(module, inOrder)
    else if (isSequenceParallel(module) && hasPositions(module.layer)) {
      replacePositions(module.layer, module.layer.positions)
    }
  }
  const isWhole = shared.length === 0
  for (const module of modules) if (isWhole && isGPT(module)) shortenHead(module)
  for (const module of all) generating.add(module)

  return {
    /** The largest number of input tokens; Infinity without a limit. */
    block,
    /** A divisor of the number of input positions. The input is padded to a multiple of it. */
    multiple: shared[0]?.ranks ?? 1,
    /** The output head, if each rank computes the scores of only some tokens; otherwise undefined. */
    head: all.find(isVocabParallelHead),
    get length() {
      return computed
    },
    /** Drops all cached positions from index `length` on, including positions of the last pass. */
    truncate(length: number) {
      computed = length
      caches?.truncate(length)
    },
    end() {
      for (const module of all) generating.delete(module)
      for (const restore of undo.reverse()) restore()
      caches?.dispose()
    },
  }
}

function lastPosition(x: Tensor): Tensor {
  const [batch, length, width] = x.shape as [number, number, number]
  return length === 1 ? x : tf.slice(x, [0, length - 1, 0], [batch, 1, width])
}

/** Returns the scores [1, 1, vocabulary] at one position, counted from the end of the output. */
export function scoresAt(outputs: Tensor, fromEnd: number): Tensor {
  const [batch, length, vocabulary] = outputs.shape as [number, number, number]
  if (outputs.rank !== 3 || batch !== 1) {
    throw argumentError(
      'the output of the model',
      `a tensor of shape [${outputs.shape.join(', ')}]`,
      'scores [1, length, vocabulary], as of a GPT',
    )
  }
  if (length === 1) return tf.clone(outputs)
  return tf.slice(outputs, [0, length - 1 - fromEnd, 0], [1, 1, vocabulary])
}

function blockOf(module: Module): number {
  if (isGPT(module)) return module.block
  return hasPositions(module) ? module.weight.shape[0]! : Infinity
}
