// The lecture's programs, data parallel, questions 2 and 3: no all-reduce, and a sum instead of a mean.
//
//   npx tsx examples/solutions/lecture-average.ts
//
// One process trains two replicas. Both start from the same weight; each has rows of its own.

import { AdamW, loadBackend, record, SGD, sumInto, tf, type Tensor } from '@tsrun/training'
import { inputs, layer, meanSquare, parameter, weights } from '../lecture/mlp.ts'
import { prove } from '../lib/prove.ts'

const [ROWS, WIDTH, STEPS] = [32, 16, 3]

await loadBackend()
const data = inputs(ROWS, WIDTH)
const shares = [0, 1].map((rank) => tf.slice(data, [(rank * ROWS) / 2, 0], [ROWS / 2, WIDTH]))

/** What the ranks do with their gradients. */
type Combine = 'nothing' | 'mean' | 'sum'

/** Trains both replicas. Returns the weights of each. */
function train(combine: Combine, makeOptimizer: () => AdamW | SGD): Float32Array[] {
  const replicas = shares.map((rows) => ({
    rows,
    weight: parameter(0, weights(0, WIDTH)),
    optimizer: makeOptimizer(),
  }))
  for (let step = 0; step < STEPS; step++) {
    const own = replicas.map(({ rows, weight }) => {
      const loss = (x: Tensor): Tensor => meanSquare(layer(x, weight.value))
      const recording = record(loss, rows, [weight], { needsInputGradient: false })
      const gradients = new Map<string, Tensor>()
      recording.backward(tf.scalar(1), sumInto(gradients))
      return gradients.get(weight.name)!
    })
    const total = tf.add(own[0]!, own[1]!)
    replicas.forEach(({ weight, optimizer }, rank) => {
      const shared = combine === 'sum' ? tf.clone(total) : tf.div(total, 2)
      const gradient = combine === 'nothing' ? own[rank]! : shared
      optimizer.step([weight], new Map([[weight.name, gradient]]))
    })
  }
  return replicas.map(({ weight }) => weight.value.dataSync<'float32'>().slice())
}

function difference(a: Float32Array, b: Float32Array): number {
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0)
}

const adam = () => new AdamW({ learningRate: 1e-3 })
const sgd = () => new SGD({ learningRate: 0.1 })
const alone = train('nothing', adam)
const mean = train('mean', adam)
console.log(`no all-reduce: replicas differ by ${difference(alone[0]!, alone[1]!).toFixed(4)}`)
console.log(`the mean: replicas differ by ${difference(mean[0]!, mean[1]!)}`)
prove('without the all-reduce, the replicas diverge', alone[0]![0] !== alone[1]![0])

const [withAdam, withSgd] = [adam, sgd].map((optimizer) =>
  difference(train('sum', optimizer)[0]!, train('mean', optimizer)[0]!),
) as [number, number]
console.log(
  `a sum instead of a mean: AdamW ${withAdam.toExponential(0)}, SGD ${withSgd.toFixed(3)}`,
)
prove('AdamW hardly notices the missing division', withAdam < 1e-5)
prove('SGD takes steps twice as large', withSgd > 1e-3)
