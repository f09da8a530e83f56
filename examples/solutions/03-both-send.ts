// Lesson 03, question 2: two ranks that both send first.
//
//   npx tsx examples/solutions/03-both-send.ts
//
// A small message is eager: it waits at its receiver. A large one waits at its sender until the receive is
// called, so both ranks wait in their sends. In a world within one process, this is found at once.

import { isTsrError } from '@tsrun/core'
import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { prove } from '../lib/prove.ts'

type Exchange = (group: ProcessGroup, bytes: number) => Promise<void>

const sendFirst: Exchange = async (group, bytes) => {
  await group.send(new Uint8Array(bytes), 1 - group.rank)
  await group.recv(new Uint8Array(bytes), 1 - group.rank)
}

/** The send is under way while the rank receives. */
const sendMeanwhile: Exchange = async (group, bytes) => {
  const sending = group.send(new Uint8Array(bytes), 1 - group.rank)
  await group.recv(new Uint8Array(bytes), 1 - group.rank)
  await sending
}

async function ends(exchange: Exchange, bytes: number): Promise<boolean> {
  try {
    await runWorld({ size: 2 }, (group) => exchange(group, bytes))
    return true
  } catch (error) {
    if (isTsrError(error) && error.code === 'ERR_TSR_DEADLOCK') return false
    throw error
  }
}

// Twice as many bytes each time, until both ranks wait; then one byte more than arrived.
let most = 1024
while (await ends(sendFirst, 2 * most)) most *= 2
const isLimit = !(await ends(sendFirst, most + 1))
console.log(`${most} bytes arrive; with one more, both ranks wait forever`)
prove('the limit is a power of two', isLimit)
const isMended = await ends(sendMeanwhile, 2 ** 20)
prove('a send that is awaited after the receive ends with any size', isMended)
