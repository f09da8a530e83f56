// Tests an installed binding by computing with it: node proof-process.js FOLDER PACKAGE

import { createRequire } from 'node:module'
import { join } from 'node:path'
import { restoreLegacyUtil } from '@tsrun/core'

/** The backend of the binding. */
interface Backend {
  readonly isUsingGpuDevice: boolean
  readonly binding: { readonly TF_Version: string }
}

const [folder = '', name = ''] = process.argv.slice(2)
restoreLegacyUtil()
// The binding has the same interface as `tf` of @tsrun/training, which is not loaded here.
const tf = createRequire(join(folder, 'any.js'))(name) as (typeof import('@tsrun/training'))['tf']

expect('the backend', tf.getBackend(), 'tensorflow')
const a = tf.tensor2d([
  [1, 2],
  [3, 4],
])
const b = tf.tensor2d([
  [5, 6],
  [7, 8],
])
expect('a matmul', tf.matMul(a, b).dataSync(), [19, 22, 43, 50])
const weights = tf.tensor2d([[3], [4]])
const gradient = tf.grad((x) => tf.square(tf.matMul(x, weights)))(tf.tensor2d([[1, 2]]))
expect('a gradient', gradient.dataSync(), [66, 88])
expect('topk', tf.topk(tf.tensor1d([1, 5, 3]), 2).values.dataSync(), [5, 3])

const { binding, isUsingGpuDevice } = tf.backend() as unknown as Backend
process.stdout.write(JSON.stringify({ tensorflow: binding.TF_Version, gpu: isUsingGpuDevice }))

function expect(what: string, actual: string | ArrayLike<number>, expected: unknown): void {
  const value = typeof actual === 'string' ? actual : Array.from(actual)
  if (JSON.stringify(value) === JSON.stringify(expected)) return
  throw new Error(`${what} gives ${JSON.stringify(value)}, not ${JSON.stringify(expected)}`)
}
