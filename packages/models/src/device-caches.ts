import {
  type AttentionCore,
  Block,
  CausalSelfAttention,
  Dropout,
  Embedding,
  FeedForward,
  type Module,
  type Tensor,
  tf,
} from '@tsrun/training'
import {
  causalAttention,
  hasPositions,
  isAttention,
  isRepeatable,
  modulesOf,
  repeated,
} from '@tsrun/training/parts'
import { noGradient } from './cached-attention.ts'
import { GPT } from './gpt.ts'

/** The smallest number of positions for which caches have room. */
const SMALLEST = 64
/** The score of a position that a query does not attend to; see `causalAttention`. */
const MASKED = -1e30

/** Modules that run the same operations for each token, except in training. */
const PLAIN: readonly unknown[] = [GPT, Block, CausalSelfAttention, FeedForward, Embedding, Dropout]

const numbers = new WeakMap<Module, number>()
let numbered = 0

function numberOf(module: Module): number {
  const number = numbers.get(module) ?? numbered++
  numbers.set(module, number)
  return number
}

/**
 * The KV caches of attention layers whose tensors are on a device. They have room for a fixed number of
 * positions, which doubles when they are full. A pass of one token then has the same shapes for many
 * tokens, so that the backend can repeat it with few calls; see `TensorBackend.repeat`.
 *
 * @param block - the largest number of positions
 */
export function deviceCaches(block: number) {
  /** The keys and the values of each layer, [heads, capacity, size]. */
  const caches: (readonly [keys: Tensor, values: Tensor])[] = []
  /** Tensors that depend only on the positions of the current tokens. */
  const places = new Map<string, Tensor>()
  let layers = 0
  let length = 0
  let capacity = 0

  const truncate = (to: number) => {
    length = to
    tf.dispose([...places.values()])
    places.clear()
  }
  const replace = (layer: number, next: readonly [Tensor, Tensor]) => {
    for (const old of caches[layer] ?? []) if (!next.includes(old)) old.dispose()
    caches[layer] = next
  }
  const reserve = (positions: number) => {
    if (positions <= capacity) return
    const doubled = SMALLEST * 2 ** Math.max(0, Math.ceil(Math.log2(positions / SMALLEST)))
    const added = Math.max(positions, Math.min(doubled, block)) - capacity
    capacity += added
    const grow = (x: Tensor) =>
      tf.keep(
        tf.pad(x, [
          [0, 0],
          [0, added],
          [0, 0],
        ]),
      )
    caches.forEach(([keys, values], layer) => {
      replace(layer, [grow(keys), grow(values)])
    })
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
  /** Returns the place [head, position] of each new key in a cache. */
  const rowsOf = (heads: number, count: number) =>
    place(`rows ${heads} ${count}`, () => {
      const rows = Array.from({ length: heads * count }, (_, i) => [
        Math.floor(i / count),
        length + (i % count),
      ])
      return tf.tensor2d(rows, undefined, 'int32')
    })
  const maskOf = (count: number) =>
    place(`mask ${count}`, () => {
      const mask = new Float32Array(count * capacity)
      for (let i = 0; i < count; i++) {
        mask.fill(MASKED, i * capacity + length + i + 1, (i + 1) * capacity)
      }
      return tf.tensor2d(mask, [count, capacity])
    })

  return {
    truncate,

    /** Returns the attention core of the next layer. */
    core(): AttentionCore {
      const layer = layers++
      return {
        forward(q, k, v) {
          const [, heads, count, size] = q.shape as [number, number, number, number]
          reserve(length + count)
          const [keys, values] = [k, v].map((rows, i) => {
            const before = caches[layer]?.[i] ?? tf.zeros([heads, capacity, size])
            const updates = tf.reshape(rows, [heads * count, size])
            return tf.keep(tf.tensorScatterUpdate(before, rowsOf(heads, count), updates))
          }) as [Tensor, Tensor]
          replace(layer, [keys, values])
          const scores = tf.mul(tf.matMul(q, keys, false, true), 1 / Math.sqrt(size))
          const probabilities = tf.softmax(tf.add(scores, maskOf(count)))
          return { output: tf.matMul(probabilities, values), saved: [] }
        },
        backward: noGradient,
      }
    },

    /**
     * Lets the backend repeat the passes of single tokens, if all modules inside `module` are plain.
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
        if (x.shape[1] !== 1 || caches.length < layers) return forward(x)
        // A repeated pass does not check the tokens.
        first!.isRepeatable?.(x)
        reserve(length + 1)
        for (const [keys] of caches) rowsOf(keys.shape[0], 1)
        positionsOf(1)
        maskOf(1)
        const inputs = [
          x,
          ...places.values(),
          ...caches.flat(),
          ...parameters.map(({ value }) => value),
        ]
        const [output, ...next] = repeated(name, inputs, () => [forward(x), ...caches.flat()])
        caches.forEach((_, layer) => {
          replace(layer, [next[2 * layer]!, next[2 * layer + 1]!])
        })
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
      tf.dispose(caches.flat())
    },
  }
}

function isPlain(module: Module): boolean {
  if (isAttention(module) && module.core !== causalAttention) return false
  return PLAIN.includes(module.constructor) || isRepeatable(module)
}
