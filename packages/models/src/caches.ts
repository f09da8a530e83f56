import { argumentError } from '@tsrun/core'
import {
  type AttentionCore,
  Block,
  CausalSelfAttention,
  Dropout,
  Embedding,
  FeedForward,
  type Module,
  type Tensor,
  currentPass,
  tf,
} from '@tsrun/training'
import {
  causalAttention,
  currentBackend,
  hasPositions,
  isAttention,
  isHostAccessible,
  isRepeatable,
  MASKED,
  modulesOf,
  repeated,
} from '@tsrun/training/parts'
import { GPT } from './gpt.ts'

/** The number of positions in the smallest caches, unless the longest input has fewer. */
const SMALLEST = 64

/** Classes of modules that run the same operations for each token outside of training. */
const PLAIN: readonly unknown[] = [GPT, Block, CausalSelfAttention, FeedForward, Embedding, Dropout]

const numbers = new WeakMap<Module, number>()
let numbered = 0

function numberOf(module: Module): number {
  const number = numbers.get(module) ?? numbered++
  numbers.set(module, number)
  return number
}

function noGradient(): never {
  throw argumentError(
    'a backward pass',
    'one while a text is generated',
    'training before or after generate()',
  )
}

/**
 * The KV caches of attention layers. Each call of a layer attends to its own positions and to the positions
 * that the last `truncate` kept. The results equal those of `causalAttention` on the whole sequence. The
 * caches have room for a fixed number of positions, which doubles when they are full. A pass of one token
 * then has the same shapes for many tokens, so that the backend can repeat it with few calls; see
 * `TensorBackend.repeat`.
 *
 * @param block - the largest number of positions
 */
export function keyValueCaches(block: number) {
  /**
   * Index 2 i holds the keys of layer i, and index 2 i + 1 its values, each [batch * heads, capacity,
   * size]. For backends with `cachedAttention`, index 2 i holds both.
   */
  const caches = new Map<number, Tensor>()
  /** Tensors that depend only on the positions of the current tokens. */
  const places = new Map<string, Tensor>()
  let layers = 0
  let length = 0
  let capacity = 0

  const clear = (tensors: Map<unknown, Tensor>) => {
    tf.dispose([...tensors.values()])
    tensors.clear()
  }
  const truncate = (to: number) => {
    length = to
    clear(places)
    // The mask does not hide rows that are not finite, so an empty cache must not keep old rows.
    if (to === 0) clear(caches)
  }
  const replace = (index: number, next: Tensor) => {
    const before = caches.get(index)
    if (before !== next) before?.dispose()
    caches.set(index, next)
  }
  const reserve = (positions: number) => {
    if (positions <= capacity) return
    const doubled = SMALLEST * 2 ** Math.max(0, Math.ceil(Math.log2(positions / SMALLEST)))
    const added = Math.max(positions, Math.min(doubled, block)) - capacity
    capacity += added
    for (const [index, cache] of caches) {
      const grown = tf.pad(cache, [
        [0, 0],
        [0, added],
        [0, 0],
      ])
      replace(index, tf.keep(grown))
    }
  }

  const place = (key: string, make: () => Tensor) => {
    const tensor = places.get(key) ?? tf.keep(make())
    places.set(key, tensor)
    return tensor
  }
  const positionsOf = (count: number) =>
    place(`positions ${count}`, () =>
      tf.tensor1d(
        Int32Array.from({ length: count }, (_, i) => length + i),
        'int32',
      ),
    )
  /** Returns the indices [sequence and head, position] of each new key in a cache. */
  const rowsOf = (sequences: number, count: number) =>
    place(`rows ${sequences} ${count}`, () => {
      const rows = Array.from({ length: sequences * count }, (_, i) => [
        Math.floor(i / count),
        length + (i % count),
      ])
      return tf.tensor2d(rows, undefined, 'int32')
    })
  const maskOf = (count: number, columns = capacity) =>
    place(`mask ${count}`, () => {
      const mask = new Float32Array(count * columns)
      for (let i = 0; i < count; i++) {
        mask.fill(MASKED, i * columns + length + i + 1, (i + 1) * columns)
      }
      return tf.tensor2d(mask, [count, columns])
    })

  return {
    truncate,

    /** Returns the attention core of the next layer. */
    core(): AttentionCore {
      const layer = layers++
      const pass = currentBackend().cachedAttention
      const fused: AttentionCore['fused'] = (rows, size) => {
        const [batch, count, channels] = rows.shape as [number, number, number]
        reserve(length + count)
        const shape = [batch, capacity, (2 * channels) / 3]
        const cache = caches.get(2 * layer) ?? tf.keep(tf.zeros(shape))
        caches.set(2 * layer, cache)
        return { value: pass!(rows, size, cache, length), saved: [], gradients: noGradient }
      }
      return {
        fused: pass && fused,
        forward(q, k, v) {
          const [batch, heads, count, size] = q.shape as [number, number, number, number]
          const sequences = batch * heads
          reserve(length + count)
          // On a CPU a new shape costs nothing, so leave out the unused positions.
          const columns = isHostAccessible() ? length + count : capacity
          const [keys, values] = [k, v].map((rows, i) => {
            const index = 2 * layer + i
            const before = caches.get(index) ?? tf.zeros([sequences, capacity, size])
            const updates = tf.reshape(rows, [sequences * count, size])
            const next = tf.tensorScatterUpdate(before, rowsOf(sequences, count), updates)
            replace(index, tf.keep(next))
            return columns === capacity ? next : tf.slice(next, [0, 0, 0], [-1, columns, -1])
          }) as [Tensor, Tensor]
          const queries = tf.reshape(q, [sequences, count, size])
          const scores = tf.matMul(queries, keys, false, true)
          const probabilities = tf.softmax(tf.add(scores, maskOf(count, columns)))
          return { output: tf.reshape(tf.matMul(probabilities, values), q.shape), saved: [] }
        },
        backward: noGradient,
      }
    },

    /**
     * Lets the backend repeat the passes of single tokens, if they run the same operations for each token.
     *
     * @returns a function that restores the module
     */
    repeat(module: GPT): () => void {
      const parts = [module, ...Array.from(modulesOf(module), (each) => each.module)]
      if (!parts.every(isPlain)) return () => undefined
      const name = `generate ${parts.map(numberOf).join()}`
      const forward = module.forward.bind(module)
      const [first] = module.layers
      const { parameters } = module
      const positions = parts.filter(hasPositions)
      for (const part of positions) {
        part.forward = (x) => tf.add(x, tf.gather(part.weight.value, positionsOf(x.shape[1]!)))
      }
      module.forward = (x) => {
        const isFirst = caches.size < 2 * layers
        if (x.shape[1] !== 1 || isFirst || currentPass()?.training === true) return forward(x)
        // Check the tokens here, because a repeated pass does not.
        first!.isRepeatable?.(x)
        reserve(length + 1)
        for (const cache of caches.values()) rowsOf(cache.shape[0], 1)
        if (positions.length > 0) positionsOf(1)
        maskOf(1)
        const inputs = [
          x,
          ...places.values(),
          ...caches.values(),
          ...parameters.map(({ value }) => value),
        ]
        // Unlike a repeated pass, `forward` replaces the caches itself, and disposes those in `inputs`.
        const [output, ...next] = repeated(name, inputs, () => [forward(x), ...caches.values()])
        for (const [i, index] of [...caches.keys()].entries()) replace(index, next[i]!)
        const scoped = tf.clone(output!)
        output!.dispose()
        return scoped
      }
      return () => {
        for (const part of [module, ...positions]) delete (part as Partial<Module>).forward
      }
    },

    dispose() {
      truncate(0)
    },
  }
}

function isPlain(module: Module): boolean {
  if (Object.hasOwn(module, 'forward')) return false
  if (isAttention(module) && module.core !== causalAttention) return false
  return PLAIN.includes(module.constructor) || isRepeatable(module)
}
