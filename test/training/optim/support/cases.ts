import { Adam, AdamW, SGD, tf, type Optimizer, type Parameter } from '@tsrun/training'

type Rule = () => (value: number, gradient: number) => number

/** One scalar by the formulas of torch.optim.SGD. */
const sgd =
  (rate: number, momentum: number, decay = 0, nesterov = false): Rule =>
  () => {
    let velocity: number | undefined
    return (value, given) => {
      const gradient = given + decay * value
      velocity = velocity === undefined ? gradient : momentum * velocity + gradient
      return value - rate * (nesterov ? gradient + momentum * velocity : velocity)
    }
  }

/** One scalar by the formulas of torch.optim.Adam. */
const adam =
  (rate: number, beta1: number, beta2: number, epsilon: number): Rule =>
  () => {
    let [m, v, t] = [0, 0, 0]
    return (value, gradient) => {
      t += 1
      m = beta1 * m + (1 - beta1) * gradient
      v = beta2 * v + (1 - beta2) * gradient ** 2
      const corrected = Math.sqrt(v / (1 - beta2 ** t))
      return value - (rate * (m / (1 - beta1 ** t))) / (corrected + epsilon)
    }
  }

/** With a decay torch.optim.Adam adds it to the gradient. */
const adamL2 =
  (rate: number, decay: number, beta1: number, beta2: number, epsilon: number): Rule =>
  () => {
    const step = adam(rate, beta1, beta2, epsilon)()
    return (value, gradient) => step(value, gradient + decay * value)
  }

/** One scalar by the formulas of torch.optim.AdamW: the weight decays first. */
const adamw =
  (rate: number, decay: number, beta1: number, beta2: number, epsilon: number): Rule =>
  () => {
    const step = adam(rate, beta1, beta2, epsilon)()
    return (value, gradient) => step(value - rate * decay * value, gradient)
  }

export const build = (name: string, values: number[]): Parameter => ({
  name,
  shape: [values.length],
  value: tf.tensor1d(values),
})
export const gradient = (values: number[]) => tf.tensor1d(values)

/** Optimizers, and what they do to one scalar. */
export const cases: [string, () => Optimizer, Rule][] = [
  ['SGD', () => new SGD({ learningRate: 0.1 }), sgd(0.1, 0)],
  ['SGD with momentum', () => new SGD({ learningRate: 0.1, momentum: 0.9 }), sgd(0.1, 0.9)],
  [
    'SGD with weight decay',
    () => new SGD({ learningRate: 0.1, weightDecay: 0.2 }),
    sgd(0.1, 0, 0.2),
  ],
  [
    'SGD with momentum and weight decay',
    () => new SGD({ learningRate: 0.1, momentum: 0.8, weightDecay: 0.2 }),
    sgd(0.1, 0.8, 0.2),
  ],
  [
    'SGD with Nesterov momentum',
    () => new SGD({ learningRate: 0.1, momentum: 0.9, nesterov: true }),
    sgd(0.1, 0.9, 0, true),
  ],
  [
    'SGD with all options',
    () => new SGD({ learningRate: 0.05, momentum: 0.7, weightDecay: 0.3, nesterov: true }),
    sgd(0.05, 0.7, 0.3, true),
  ],
  ['Adam', () => new Adam(), adam(1e-3, 0.9, 0.999, 1e-8)],
  [
    'Adam with options',
    () => new Adam({ learningRate: 0.02, betas: [0.8, 0.95], epsilon: 1e-3 }),
    adam(0.02, 0.8, 0.95, 1e-3),
  ],
  [
    'Adam with weight decay',
    () => new Adam({ learningRate: 0.02, weightDecay: 0.3 }),
    adamL2(0.02, 0.3, 0.9, 0.999, 1e-8),
  ],
  ['AdamW', () => new AdamW(), adamw(1e-3, 0.01, 0.9, 0.999, 1e-8)],
  [
    'AdamW with options',
    () => new AdamW({ learningRate: 0.05, betas: [0.8, 0.95], epsilon: 1e-3, weightDecay: 0.3 }),
    adamw(0.05, 0.3, 0.8, 0.95, 1e-3),
  ],
]
