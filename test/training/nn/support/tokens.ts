import { GPT, type GPTOptions } from '@tsrun/models'
import { crossEntropy, record, replaceValue, tf, type Module } from '@tsrun/training'

export const small = { vocabulary: 11, block: 6, layers: 2, heads: 2, width: 8 }

/** Some sequences and what follows each token; another one each step. */
export function tokenBatch(step: number, sequences: number, length: number, vocabulary: number) {
  const token = (i: number): number => (i * i + 3 * i + 7 * step + (i % 5)) % vocabulary
  const tensor = (shift: number) => () =>
    tf.tensor2d(
      Int32Array.from({ length: sequences * length }, (_, i) => token(i + shift)),
      [sequences, length],
      'int32',
    )
  return { size: sequences, inputs: tensor(0), labels: tensor(1) }
}

/** A GPT with weights so large that every part of it matters. */
export function livelyGpt(options: GPTOptions = {}): GPT {
  const model = new GPT({ ...small, ...options })
  for (const parameter of model.parameters) {
    const { name, value } = parameter
    const bends = /ln_\w+\.weight/.test(name)
    const next = tf.tidy(() => {
      const wave = tf.sin(tf.reshape(tf.range(0, value.size), value.shape))
      return tf.keep(
        bends ? tf.add(value, tf.mul(wave, 0.3)) : tf.add(tf.mul(value, 15), tf.mul(wave, 0.1)),
      )
    })
    replaceValue(parameter, next)
  }
  return model
}

export function lossOf(model: Module, step = 0): number {
  const { inputs, labels } = tokenBatch(step, 3, small.block, small.vocabulary)
  return tf.tidy(() => crossEntropy(model.forward(inputs()), labels()).dataSync()[0]!)
}

/** By name of the parameter. */
export function gradientsOf(model: Module, step = 0): Record<string, number[]> {
  const batch = tokenBatch(step, 3, small.block, small.vocabulary)
  const [x, labels, one] = [batch.inputs(), batch.labels(), tf.scalar(1)]
  const recording = record((h) => crossEntropy(model.forward(h), labels), x, model.parameters, {
    needsInputGradient: false,
  })
  const gradients: Record<string, number[]> = {}
  recording.backward(one, ({ name }, gradient) => {
    gradients[name] = [...gradient.dataSync()]
    gradient.dispose()
  })
  recording.dispose()
  tf.dispose([x, labels, one])
  return gradients
}
