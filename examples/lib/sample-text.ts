import { generator, tf, uniform, viewOf, type Module } from '@tsrun/training'

export interface SampleOptions {
  /** Most tokens that the model sees at once. */
  readonly block: number
  /** Bytes to write. */
  readonly length: number
  readonly seed: number
  /** Below 1 likely bytes become likelier. */
  readonly temperature?: number
}

/** Lets a model of bytes write on, byte after byte. */
export function sampleText(model: Module, prompt: string, options: SampleOptions): string {
  const { block, length, seed, temperature = 0.8 } = options
  const next = generator('sample', seed)
  const bytes = [...Buffer.from(prompt)]
  for (let i = 0; i < length; i++) {
    const seen = bytes.slice(-block)
    const chances = tf.tidy(() => {
      const scores = model.forward(tf.tensor2d([seen], [1, seen.length], 'int32'))
      const last = tf.slice(scores, [0, seen.length - 1, 0], [1, 1, -1])
      return Float32Array.from(viewOf(tf.softmax(tf.div(last, temperature))))
    })
    bytes.push(draw(chances, uniform(next)))
  }
  return Buffer.from(bytes).toString()
}

function draw(chances: Float32Array, at: number): number {
  let sum = 0
  for (const [token, chance] of chances.entries()) {
    sum += chance
    if (at < sum) return token
  }
  return chances.length - 1
}
