// Lesson 03, question 1: two ranks that both receive first.
//
//   npx tsrun --nproc 2 examples/solutions/03-both-receive.ts
//   npx tsrun --nproc 2 examples/solutions/03-both-receive.ts --mended
//
// Each rank waits for a message that the other would send afterwards. Without a time-out they would wait
// for ten minutes. With --mended, rank 0 sends first.

import { initProcessGroup } from '@tsrun/distributed'
import { readFlags, toggle } from '../lib/flags.ts'

const { mended } = readFlags({ mended: toggle('lets rank 0 send before it receives') })
const group = await initProcessGroup()
const other = 1 - group.rank
const [own, received] = [Float32Array.of(group.rank), new Float32Array(1)]
const options = { timeout: 1000, label: 'greeting' }

if (mended && group.rank === 0) {
  await group.send(own, other, options)
  await group.recv(received, other, options)
} else {
  await group.recv(received, other, options)
  await group.send(own, other, options)
}
console.log(`received ${received[0]!}`)
await group.destroy()
