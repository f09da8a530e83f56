// FSDP, question 2: ZeRO stage 1 by hand.
//
//   npx tsrun --nproc 2 examples/solutions/fsdp-by-hand.ts
//
// An all-reduce is a reduce-scatter and an all-gather. Between the two, a rank has its slice of the averaged
// gradient, and that is all that an update of its slice of the parameters needs. So it keeps the moments
// of this slice only, and the all-gather carries parameters instead of gradients.

import { initProcessGroup } from '@tsrun/distributed'
import { prove } from '../lib/prove.ts'

const [PARAMETERS, STEPS, RATE] = [1000, 20, 0.01]

/** Adam without its corrections of the first steps, for a part of the parameters. */
class Optimizer {
  readonly first: Float32Array
  readonly second: Float32Array

  constructor(length: number) {
    this.first = new Float32Array(length)
    this.second = new Float32Array(length)
  }

  step(values: Float32Array, gradient: Float32Array): void {
    for (let i = 0; i < values.length; i++) {
      this.first[i] = 0.9 * this.first[i]! + 0.1 * gradient[i]!
      this.second[i] = 0.999 * this.second[i]! + 0.001 * gradient[i]! ** 2
      values[i]! -= (RATE * this.first[i]!) / (Math.sqrt(this.second[i]!) + 1e-8)
    }
  }
}

const group = await initProcessGroup()
const { rank, size } = group
// More than two ranks could add up in another order in each of the two collectives.
const average = { op: 'avg', deterministic: true } as const

/** The gradient of half the squared distance from the rank's own point, as if from its own examples. */
function gradientAt(values: Float32Array): Float32Array {
  return values.map((value, i) => value - Math.sin(i + rank))
}

async function replicated(): Promise<{ values: Float32Array; state: number }> {
  const values = new Float32Array(PARAMETERS)
  const optimizer = new Optimizer(PARAMETERS)
  for (let step = 0; step < STEPS; step++) {
    const gradient = gradientAt(values)
    await group.allReduce(gradient, average)
    optimizer.step(values, gradient)
  }
  return { values, state: optimizer.first.byteLength + optimizer.second.byteLength }
}

async function sharded(): Promise<{ values: Float32Array; state: number }> {
  const values = new Float32Array(PARAMETERS)
  const length = PARAMETERS / size
  const own = values.subarray(rank * length, (rank + 1) * length)
  const optimizer = new Optimizer(length)
  const slice = new Float32Array(length)
  for (let step = 0; step < STEPS; step++) {
    await group.reduceScatter(slice, gradientAt(values), average)
    optimizer.step(own, slice)
    await group.allGather(values, own)
  }
  return { values, state: optimizer.first.byteLength + optimizer.second.byteLength }
}

const [whole, parts] = [await replicated(), await sharded()]
if (rank === 0) console.log(`bytes of moments: ${whole.state} replicated, ${parts.state} sharded`)
const isSame = whole.values.every((value, i) => value === parts.values[i])
prove('both have the same parameters, to the bit', isSame)
prove(`a rank has 1/${size} of the moments`, parts.state * size === whole.state)
await group.destroy()
