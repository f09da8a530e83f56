import type { ProcessGroup } from '@tsrun/distributed'
import { sendTensor, type Tensor } from '@tsrun/training'
import { toggle } from './flags.ts'

/** The flag `--messages`. */
export const messagesFlag = toggle('prints what each rank sends')

/** `sending [32, 256] to rank 1` */
export function describeSending(shape: readonly number[], to: number): string {
  return `sending [${shape.join(', ')}] to rank ${to}`
}

/** Returns `sendTensor` of a group, which prints each message first if `isShown`. */
export function sender(
  group: ProcessGroup,
  isShown: boolean,
): (tensor: Tensor, to: number) => Promise<void> {
  return async (tensor, to) => {
    if (isShown) console.log(describeSending(tensor.shape, to))
    await sendTensor(group, tensor, to)
  }
}
