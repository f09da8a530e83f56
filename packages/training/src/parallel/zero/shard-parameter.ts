import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { isHostAccessible } from '../../backend/current.ts'
import { holdArray, holdTensor, type HeldValues } from '../../backend/held-values.ts'
import { createTensor, tensorFrom, viewOf, writeTo } from '../../backend/host-memory.ts'
import { partOfParameter, type HeldPiece, type Part, type Piece } from '../../checkpoint/piece.ts'
import type { Parameter, Shard } from '../../model/parameter.ts'
import { tf } from '../../tfjs/tfjs.ts'
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

/**
 * This rank's shard of a parameter, as an optimizer sees it: a flat tensor with the name of the
 * parameter. The values are in a `ShardOwner`. Reading `value` creates a tensor, and setting it
 * copies the values to the owner at once.
 */
export class ShardParameter implements Parameter {
  readonly name: string
  readonly shape: number[]
  /**
   * The part of a tensor that the parameter itself is, with tensor parallelism; undefined for a whole
   * tensor.
   */
  readonly shard?: Shard
  readonly range: OwnedRange
  readonly #owner: ShardOwner
  #value: Tensor | undefined
  /** Called with the values of held pieces before a step changes them. */
  readonly #holders = new Set<(value: Tensor) => void>()
  #written: Promise<void>[] = []
  #isNew = false

  constructor(range: OwnedRange, owner: ShardOwner) {
    this.name = range.parameter.name
    this.shape = [range.to - range.from]
    const { shape, shard } = range.parameter
    if (shard !== undefined && shard.shape.join() !== shape.join()) this.shard = shard
    this.range = range
    this.#owner = owner
  }

  get countedElsewhere(): boolean {
    return this.range.parameter.countedElsewhere === true
  }

  /** Whether `value` has been set since the last `settle`. */
  get isNew(): boolean {
    return this.#isNew
  }

  /** Returns the tensor of the values, which held pieces share from now on. */
  #read(): Tensor {
    this.#value ??= this.#owner.read()
    for (const preserve of this.#holders) preserve(this.#value)
    this.#holders.clear()
    return this.#value
  }

  get value(): Tensor {
    return this.#read()
  }

  /** Copies the values to the owner, and then disposes the tensor. */
  set value(next: Tensor) {
    if (this.#holders.size > 0) this.#read()
    const written = this.#owner.write(next)
    this.#value = undefined
    this.#isNew = true
    if (written === undefined) next.dispose()
    else
      this.#written.push(
        written.finally(() => {
          next.dispose()
        }),
      )
  }

  /** Ends a step. Afterwards the owner has the current values, whether or not the step updated them. */
  async settle(): Promise<void> {
    if (!this.#isNew) await this.#owner.keep?.()
    this.release()
    await Promise.all(this.#written)
    this.#written = []
    this.#isNew = false
  }

  /** The range of the parameter that this shard covers, for checkpoints. */
  get part(): Part {
    const { parameter, from, to } = this.range
    return partOfParameter(parameter, [from, to])
  }

  /** Holds the values: in their place until a step reads them, then in the tensor of the step. */
  piece(): HeldPiece {
    let held = this.#owner.hold()
    const preserve = (value: Tensor): void => {
      held.release()
      held = holdTensor(value)
    }
    this.#holders.add(preserve)
    const values: HeldValues = {
      length: held.length,
      read: (target, from) => held.read(target, from),
      release: () => {
        this.#holders.delete(preserve)
        held.release()
      },
    }
    return { ...this.part, values }
  }

  load({ values }: Piece): void {
    this.value = tensorFrom(values as Float32Array, this.shape)
  }

  /** Disposes the tensor that reading `value` created. */
  release(): void {
    this.#value?.dispose()
    this.#value = undefined
  }
}
