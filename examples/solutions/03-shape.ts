// Lesson 03, question 3: what a receiver has to know.
//
//   npx tsx examples/solutions/03-shape.ts
//
// A message has the values of a tensor and their number, but no shape. A wrong shape of the same size is
// accepted, and mixes up rows. Another size is refused.

import { isTsrError } from '@tsrun/core'
import { runWorld } from '@tsrun/distributed'
import { loadBackend, recvTensor, sendTensor, tf } from '@tsrun/training'
import { prove } from '../lib/prove.ts'

await loadBackend()

/** Rank 0 sends [[1, 2, 3], [4, 5, 6]]. Returns the first row that rank 1 receives, or its error. */
async function firstRow(shape: readonly [number, number]): Promise<string> {
  const [, row] = await runWorld({ size: 2 }, async (group) => {
    try {
      if (group.rank === 0) {
        await sendTensor(group, tf.tensor2d([1, 2, 3, 4, 5, 6], [2, 3]), 1)
        return ''
      }
      const received = await recvTensor(group, shape, 0)
      return Array.from(received.dataSync().subarray(0, shape[1])).join(', ')
    } catch (error) {
      if (!isTsrError(error)) throw error
      return `${error.code}: ${error.message}`
    }
  })
  return row!
}

const rows = new Map<string, string>()
for (const shape of [
  [2, 3],
  [3, 2],
  [2, 2],
] as const) {
  rows.set(shape.join(), await firstRow(shape))
  console.log(`[${shape.join(', ')}]: ${rows.get(shape.join())!}`)
}
prove('a wrong shape of the same size is not noticed', rows.get('3,2') === '1, 2')
prove('another size is an error', rows.get('2,2')!.startsWith('ERR_TSR_'))
