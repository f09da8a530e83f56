import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import { isHostAccessible } from '../../backend/current.ts'
import { holdArray, holdTensor, type HeldValues } from '../../backend/held-values.ts'
import { createTensor, tensorFrom, viewOf, writeTo } from '../../backend/host-memory.ts'
import { partOfParameter, type HeldPiece, type Piece } from '../../checkpoint/piece.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { OwnedRange } from '../gradients/buckets.ts'

/** Holds the values of a shard between two steps. */
export interface ShardOwner {
  /** Returns the values as a new tensor. */
  read(): Tensor
  /** Holds the values until the next `write`. */
  hold(): HeldValues
  /** Copies new values from a tensor, which the caller still owns. */
  write(next: Tensor): void | Promise<void>
  /**
   * Copies the current values into the bucket share, for a step that does not update them.
   * Undefined if they are always in the share.
   */
  keep?(): Promise<void>
}

type Recording = Pick<ProcessGroup, 'spans'>

/**
 * Returns the owner of a shard whose parameter is unsharded on every rank. It reads values from the
 * parameter, and writes new values into `share`.
 */
export function ownerInParameter(
  { parameter, from, to, at }: OwnedRange,
  share: Float32Array,
  group: Recording,
): ShardOwner {
  const slice = (): Tensor => {
    const { value } = parameter
    if (isHostAccessible()) {
      return createTensor([to - from], (values) => {
        values.set(viewOf(value).subarray(from, to))
      })
    }
    return tf.tidy(() => tf.keep(tf.slice(tf.reshape(value, [-1]), from, to - from)))
  }
  const facts = { name: parameter.name, bytes: 4 * (to - from) }
  const read = (): Tensor => timeSpan(group.spans, 'unpack', facts, slice)
  return {
    read,
    hold: () => holdTensor(parameter.value, from, to),
    write: (next) => writeInto(share, at, next, group),
    async keep() {
      const same = read()
      await writeInto(share, at, same, group)
      same.dispose()
    },
  }
}

/** Returns the owner of a shard that has no tensor: its values lie in this rank's part of a bucket. */
export function ownerInShare(
  { parameter, from, to, at }: OwnedRange,
  share: Float32Array,
  group: Recording,
): ShardOwner {
  const facts = { name: parameter.name, bytes: 4 * (to - from) }
  const values = share.subarray(at, at + to - from)
  return {
    read: () => timeSpan(group.spans, 'unpack', facts, () => tensorFrom(values, [to - from])),
    hold: () => holdArray(values),
    write: (next) => writeInto(share, at, next, group),
  }
}

function writeInto(
  share: Float32Array,
  at: number,
  next: Tensor,
  { spans }: Recording,
): void | Promise<void> {
  return timeSpan(spans, 'pack', { name: 'values', bytes: 4 * next.size }, () =>
    writeTo(next, share.subarray(at, at + next.size)),
  )
}

export type ShardParameter = ReturnType<typeof shardParameter>

/**
 * This rank's shard of a parameter, as an optimizer sees it: a flat tensor with the name of the
 * parameter. The values are in a `ShardOwner`. Reading `value` creates a tensor, and setting it
 * copies the values to the owner at once.
 */
export function shardParameter(range: OwnedRange, owner: ShardOwner) {
  const { parameter, from, to } = range
  const { name, shape: whole, shard } = parameter
  const shape = [to - from]
  /** The range of the parameter that this shard covers, for checkpoints. */
  const part = partOfParameter(parameter, [from, to])
  let value: Tensor | undefined
  /** Called with the values of held pieces before a step changes them. */
  const holders = new Set<(value: Tensor) => void>()
  let written: Promise<void>[] = []
  let isNew = false

  /** Returns the tensor of the values, which held pieces share from now on. */
  const read = () => {
    value ??= owner.read()
    for (const preserve of holders) preserve(value)
    holders.clear()
    return value
  }
  const write = (next: Tensor) => {
    if (holders.size > 0) read()
    const writing = owner.write(next)
    value = undefined
    isNew = true
    if (writing === undefined) next.dispose()
    else
      written.push(
        writing.finally(() => {
          next.dispose()
        }),
      )
  }
  const release = () => {
    value?.dispose()
    value = undefined
  }
  return {
    name,
    shape,
    range,
    part,
    /**
     * The part of a tensor that the parameter itself is, with tensor parallelism; undefined for a whole
     * tensor.
     */
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

    /** Copies the values to the owner, and then disposes the tensor. */
    set value(next: Tensor) {
      write(next)
    },

    /** Ends a step. Afterwards the owner has the current values, whether or not the step updated them. */
    async settle() {
      if (!isNew) await owner.keep?.()
      release()
      await Promise.all(written)
      written = []
      isNew = false
    },

    /** Holds the values: in their place until a step reads them, then in the tensor of the step. */
    piece(): HeldPiece {
      let held = owner.hold()
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
}
