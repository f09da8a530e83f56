import { registerCpu } from '#tfjs'
import type { BackendFacts, TensorBackend } from '../tfjs/backend.ts'
import { correctKernels } from '../tfjs/correct-kernels.ts'
import { createFromArray, readSync } from '../tfjs/generic-backend.ts'
import { countCopy, type HostArray } from '../tfjs/host-arrays.ts'
import { tf } from '../tfjs/tfjs.ts'

/** An installed kernel, to detect that an import of `@tensorflow/tfjs` overwrote all kernels. */
let installed: unknown

/**
 * Loads the cpu backend: plain JavaScript, slow, available everywhere. The other backends must match it.
 */
export async function loadCpu(): Promise<BackendFacts> {
  registerCpu()
  if (!(await tf.setBackend('cpu'))) throw new Error('it could not be initialized')
  if (tf.getKernel('AvgPool', 'cpu') !== installed) {
    correctKernels('cpu')
    installed = tf.getKernel('AvgPool', 'cpu')
  }
  return { device: 'CPU', threads: 1 }
}

const EMPTY = new Float32Array(0)

/** Source: tfjs-backend-cpu 4.22, `backend_cpu.js`: `write`, `readSync`. */
interface CpuTensors {
  readonly data: { get(dataId: object): { values: Float32Array } }
}

/** Tensors of the cpu backend are typed arrays, so reading or writing values takes one copy. */
export const cpuBackend: TensorBackend = {
  view: readSync,

  writeTo(tensor, target) {
    target.set(readSync(tensor))
    countCopy('toHost', target.byteLength)
  },

  create: createFromArray,

  storageOf({ dataId }) {
    const data = (tf.engine().backend as unknown as CpuTensors).data.get(dataId)
    return {
      free() {
        data.values = EMPTY
      },
      fill(values) {
        data.values = new Float32Array(values)
      },
      abandon: () => undefined,
    }
  },

  /** Rounds only the final results, because differences of rounded exponentials would be biased. */
  crossEntropy(logits, labels, weight, { ignoreIndex, labelSmoothing }) {
    const classes = logits.size / labels.size
    const shared = labelSmoothing / classes
    const scores = readSync(logits) as Float32Array
    let loss = 0
    const fill = (gradient: HostArray) => {
      readSync(labels).forEach((label, row) => {
        if (label === ignoreIndex) return
        const own = scores.subarray(row * classes, (row + 1) * classes)
        const largest = own.reduce((a, b) => Math.max(a, b))
        const exponentials = Float64Array.from(own, (score) => Math.exp(score - largest))
        const total = exponentials.reduce((a, b) => a + b)
        loss += weight * Math.log(total)
        exponentials.forEach((exponential, k) => {
          const target = shared + (k === label ? 1 - labelSmoothing : 0)
          gradient[row * classes + k] = (exponential / total - target) * weight
          // If the target is 0, skip the product: 0 times a logit of -Infinity is NaN.
          if (target > 0) loss -= weight * target * (own[k]! - largest)
        })
      })
    }
    const gradient = tf.keep(createFromArray(logits.shape, 'float32', fill))
    return { value: tf.scalar(loss), gradient }
  },
}
