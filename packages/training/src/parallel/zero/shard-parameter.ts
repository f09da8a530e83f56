import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { isHostAccessible } from '../../backend/current.ts'
import { createTensor, tensorFrom, viewOf, writeTo } from '../../backend/host-memory.ts'
import { partOfParameter, type Part, type Piece } from '../../checkpoint/piece.ts'
import type { Parameter, Shard } from '../../model/parameter.ts'
import { tf } from '../../tfjs/tfjs.ts'
import type { OwnedRange } from '../gradients/buckets.ts'

/** Owns the values of a shard between two steps. */
export interface ShardOwner {
  /** Makes a new tensor of the values. */
  read(): Tensor
  /** Takes new values; the tensor stays the caller's. */
  write(next: Tensor): void | Promise<void>
  /**
   * Copies the current values to the share, for a step that does not update them. Undefined if the share
   * already contains them.
   */
  keep?(): Promise<void>
}

type Recording = Pick<ProcessGroup, 'spans'>

/** The owner of a shard whose parameter is unsharded on every rank. New values go into `share`. */
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
    write: (next) => writeInto(share, at, next, group),
    async keep() {
      const same = read()
      await writeInto(share, at, same, group)
      same.dispose()
    },
  }
}

/** The owner of a shard whose values are in this rank's share of a bucket. */
export function ownerInShare(
  { parameter, from, to, at }: OwnedRange,
  share: Float32Array,
  group: Recording,
): ShardOwner {
  const facts = { name: parameter.name, bytes: 4 * (to - from) }
  return {
    read: () =>
      timeSpan(group.spans, 'unpack', facts, () =>
        tensorFrom(share.subarray(at, at + to - from), [to - from]),
      ),
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
 * This rank's part of a parameter, for an optimizer: flat, with the parameter's name. It has no memory:
 * the tensor is made when it is read, and a new value goes to the owner at once.
 */
export class ShardParameter implements Parameter {
  readonly name: string
  readonly shape: readonly number[]
  /** The shard that the parameter itself is, if it is a part of a tensor. */
  readonly shard?: Shard
  readonly range: OwnedRange
  readonly #owner: ShardOwner
  #value: Tensor | undefined
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

  /** Whether it has received values since the last `settle`. */
  get isNew(): boolean {
    return this.#isNew
  }

  get value(): Tensor {
    this.#value ??= this.#owner.read()
    return this.#value
  }

  /** Takes ownership of the tensor. */
  set value(next: Tensor) {
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

  /** Ends a step: waits until the owner has the values, new or not. */
  async settle(): Promise<void> {
    if (!this.#isNew) await this.#owner.keep?.()
    this.release()
    await Promise.all(this.#written)
    this.#written = []
    this.#isNew = false
  }

  /** The range of the whole tensor that this part covers. */
  get part(): Part {
    const { parameter, from, to } = this.range
    return partOfParameter(parameter, [from, to])
  }

  async piece(): Promise<Piece> {
    const values = new Float32Array(this.range.to - this.range.from)
    await writeTo(this.value, values)
    this.release()
    return { ...this.part, values }
  }

  load({ values }: Piece): void {
    this.value = tensorFrom(values as Float32Array, this.shape)
  }

  /** Frees the tensor, if it was read. */
  release(): void {
    this.#value?.dispose()
    this.#value = undefined
  }
}
