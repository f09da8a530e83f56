import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import { isHostAccessible } from '../../backend/current.ts'
import { holdArray, holdTensor, type HeldValues } from '../../backend/held-values.ts'
import { createTensor, tensorFrom, viewOf, writeTo } from '../../backend/host-memory.ts'
import { partOfParameter, type HeldPiece, type Piece } from '../../checkpoint/piece.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { ownedRanges, type SharedBucket } from '../gradients/exchange.ts'

export type ShardParameter = ReturnType<typeof shardsOf>[number]

/**
 * Returns this rank's shards of the parameters of a bucket, as an optimizer sees them: flat tensors with the
 * names of the parameters. Reading `value` creates a tensor; setting it copies the values to the share.
 *
 * @param share - this rank's share of the bucket, which gets new values
 * @param isInShare - whether the share always holds the values. Otherwise the parameters hold them,
 *   because they are unsharded on every rank
 */
export function shardsOf(
  bucket: SharedBucket,
  share: Float32Array,
  group: ProcessGroup,
  isInShare: boolean,
) {
  return ownedRanges(bucket, group.rank).map(({ parameter, from, to, at }) => {
    const { name, shape: whole, shard } = parameter
    const shape = [to - from]
    const bytes = 4 * (to - from)
    const place = share.subarray(at, at + to - from)
    /** The range of the parameter that this shard covers, for checkpoints. */
    const part = partOfParameter(parameter, [from, to])
    let value: Tensor | undefined
    /** Callbacks of pending checkpoints. Each gets a tensor of the values before a step changes them. */
    const holders = new Set<(value: Tensor) => void>()
    let isNew = false

    const newTensor = () =>
      timeSpan(group.spans, 'unpack', { name, bytes }, () => {
        if (isInShare) return tensorFrom(place, shape)
        const all = parameter.value
        if (isHostAccessible()) {
          return createTensor(shape, (values) => {
            values.set(viewOf(all).subarray(from, to))
          })
        }
        return tf.tidy(() => tf.keep(tf.slice(tf.reshape(all, [-1]), from, to - from)))
      })
    /** Copies the values of a tensor to the share, and disposes the tensor. */
    const moveToShare = (tensor: Tensor) => {
      timeSpan(group.spans, 'pack', { name: 'values', bytes }, () => void writeTo(tensor, place))
      tensor.dispose()
    }

    /** Returns a tensor of the values. Pending checkpoints read this tensor from now on. */
    const read = () => {
      value ??= newTensor()
      for (const preserve of holders) preserve(value)
      holders.clear()
      return value
    }
    const write = (next: Tensor) => {
      if (holders.size > 0) read()
      moveToShare(next)
      value = undefined
      isNew = true
    }
    const release = () => {
      value?.dispose()
      value = undefined
    }
    return {
      name,
      shape,
      part,
      /** With tensor parallelism: the slice of the whole tensor that the parameter holds. */
      ...(shard !== undefined && shard.shape.join() !== whole.join() && { shard }),

      get countedElsewhere() {
        return parameter.countedElsewhere === true
      },

      /** Whether `value` has been set since the last `settle`. */
      get isNew() {
        return isNew
      },

      get value() {
        return read()
      },

      set value(next: Tensor) {
        write(next)
      },

      /** Ends a step. Afterwards the share has the current values, even if the step did not update them. */
      settle() {
        if (!isNew && !isInShare) moveToShare(newTensor())
        release()
        isNew = false
      },

      /** Holds the values for a checkpoint: first in their current place, later in the tensor of `read`. */
      piece(): HeldPiece {
        let held = isInShare ? holdArray(place) : holdTensor(parameter.value, from, to)
        const preserve = (tensor: Tensor) => {
          held.release()
          held = holdTensor(tensor)
        }
        holders.add(preserve)
        const values: HeldValues = {
          length: held.length,
          read: (target, at) => held.read(target, at),
          release() {
            holders.delete(preserve)
            held.release()
          },
        }
        return { ...part, values }
      },

      load({ values }: Piece) {
        write(tensorFrom(values as Float32Array, shape))
      },

      /** Disposes the tensor that reading `value` created. */
      release,
    }
  })
}
