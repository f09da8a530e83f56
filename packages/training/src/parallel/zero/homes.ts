import type { Tensor } from '@tensorflow/tfjs-core'
import { isHostAccessible } from '../../backend/current.ts'
import { createTensor, tensorFrom, viewOf, writeTo } from '../../backend/host-memory.ts'
import { tf } from '../../tfjs/tfjs.ts'
import type { OwnedRange } from './layout.ts'
import type { Home } from './shard-parameter.ts'

/** A shard of a parameter that is whole on every rank; new values go where they are gathered from. */
export function homeInWhole({ parameter, from, to, at }: OwnedRange, share: Float32Array): Home {
  const read = (): Tensor => {
    const { value } = parameter
    if (isHostAccessible()) {
      return createTensor([to - from], (values) => {
        values.set(viewOf(value).subarray(from, to))
      })
    }
    return tf.tidy(() => tf.keep(tf.slice(tf.reshape(value, [-1]), from, to - from)))
  }
  return {
    read,
    write: (next) => writeInto(share, at, next),
    async keep() {
      const same = read()
      await writeInto(share, at, same)
      same.dispose()
    },
  }
}

/** A shard that lives in this rank's share of a bucket. */
export function homeInShare({ from, to, at }: OwnedRange, share: Float32Array): Home {
  return {
    read: () => tensorFrom(share.subarray(at, at + to - from), [to - from]),
    write: (next) => writeInto(share, at, next),
  }
}

function writeInto(share: Float32Array, at: number, next: Tensor): void | Promise<void> {
  return writeTo(next, share.subarray(at, at + next.size))
}
