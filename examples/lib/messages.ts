import type { ProcessGroup, Span } from '@tsrun/distributed'
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

/** Prints the messages of a measured step, of rows with `width` numbers each. */
export function showSent(spans: readonly Span[], width: number): void {
  for (const { kind, bytes = 0, peer } of spans) {
    const rows = bytes / Float32Array.BYTES_PER_ELEMENT / width
    if (kind === 'send') console.log(describeSending([rows, width], peer!))
  }
}
