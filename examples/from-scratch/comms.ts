// From scratch, part 1 of 3: how ranks find each other, and how they send tensors.
//
// tsrun starts the processes and gives each its rank. A message is an array of numbers: both sides know
// its shape, so nothing else is sent. Messages between two ranks arrive in the order of the sends.

import { initProcessGroup, type InitOptions, type ProcessGroup } from '@tsrun/distributed'
import { tf, type Tensor } from '@tsrun/training'

let group: ProcessGroup

/** Waits until all ranks have joined. */
export async function init(options: InitOptions): Promise<{ rank: number; size: number }> {
  group = await initProcessGroup(options)
  return group
}

export const nextRank = (): number => group.rank + 1
export const previousRank = (): number => group.rank - 1

/** The promise resolves when the values have left; the tensor may be disposed at once. */
export async function sendTensor(tensor: Tensor, to: number): Promise<void> {
  await group.send(tensor.dataSync<'float32'>(), to)
}

export async function receiveTensor(shape: readonly number[], from: number): Promise<Tensor> {
  const values = new Float32Array(shape.reduce((a, b) => a * b, 1))
  await group.recv(values, from)
  return tf.tensor(values, [...shape])
}

/** Gives every rank what each rank tells, in the order of the ranks. */
export async function tellAll<T>(fact: T): Promise<T[]> {
  return await group.allGatherObject(fact)
}

export async function end(): Promise<void> {
  await group.destroy()
}
