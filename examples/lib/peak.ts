import type { ProcessGroup } from '@tsrun/distributed'
import { tf } from '@tsrun/training'

const SIZE = 256
const MILLISECONDS = 300

/**
 * Floating-point operations a second that all ranks together reach in products of matrices, on their
 * backend and at the same time: what a training step could be as fast as on these cores.
 */
export async function measurePeak(group: ProcessGroup): Promise<number> {
  const [a, b] = [tf.randomUniform([SIZE, SIZE]), tf.randomUniform([SIZE, SIZE])]
  const multiply = (): void => {
    const product = tf.matMul(a, b)
    product.dataSync()
    product.dispose()
  }
  multiply()
  await group.barrier()
  const begin = performance.now()
  let count = 0
  for (; performance.now() - begin < MILLISECONDS; count++) multiply()
  const rate = Float64Array.of((count * 2 * SIZE ** 3 * 1000) / (performance.now() - begin))
  await group.allReduce(rate)
  tf.dispose([a, b])
  return rate[0]!
}
