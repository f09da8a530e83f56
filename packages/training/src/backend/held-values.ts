import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { isHostAccessible } from './current.ts'
import { isFreeable, viewOf, writeTo } from './host-memory.ts'
import { currentHeap } from './wasm/heap.ts'

/** A snapshot of float32 values without a copy. Training writes new values to other memory. */
export interface HeldValues {
  readonly length: number
  /** Fills `target` with the values from index `from`. */
  read(target: Float32Array, from: number): void | Promise<void>
  /**
   * Returns a view of the values in memory that has the same address until they are released. The view
   * itself is valid until the next allocation. Absent if the values have to be copied by `read`.
   */
  readonly view?: () => Float32Array
  /** Frees the memory unless another tensor uses it. Further calls do nothing. */
  release(): void
}

/** Holds the values [from, to) of a float32 tensor; default: all. */
export function holdTensor(tensor: Tensor, from = 0, to = tensor.size): HeldValues {
  const held = isFreeable(tensor) ? tf.tidy(() => tf.keep(tf.mul(tensor, 1))) : shared(tensor)
  const heap = currentHeap()
  return {
    length: to - from,
    ...(heap && { view: () => heap.floats(heap.addressOf(held) + 4 * from, to - from) }),
    async read(target, at) {
      const start = from + at
      if (isHostAccessible()) {
        target.set(viewOf(held).subarray(start, start + target.length))
        return
      }
      const flat = tf.tidy(() => tf.slice(tf.reshape(held, [-1]), start, target.length))
      await writeTo(flat, target)
      flat.dispose()
    },
    release() {
      held.dispose()
    },
  }
}

/** Whether no other tensor shares the memory of this one. */
export function isAlone({ dataId }: Tensor): boolean {
  return tf.engine().backend.refCount(dataId) === 1
}

/** Like `tf.keep(tf.clone(tensor))`, which takes ten times as long. The caller disposes of the result. */
export function shared(tensor: Tensor): Tensor {
  const engine = tf.engine()
  engine.backend.incRef(tensor.dataId)
  return tf.keep(engine.makeTensorFromTensorInfo(tensor))
}

/** Holds the values of an array that nobody overwrites. */
export function holdArray(values: Float32Array): HeldValues {
  return {
    length: values.length,
    read(target, from) {
      target.set(values.subarray(from, from + target.length))
    },
    release: () => undefined,
  }
}

/** Copies held values, and releases them. */
export async function copyHeld(held: HeldValues): Promise<Float32Array> {
  const values = new Float32Array(held.length)
  await held.read(values, 0)
  held.release()
  return values
}
