import type { AnyTypedArray, DType, TypedArrayOf } from '../dtype.ts'
import { SKIPPED } from '../engine/operation.ts'
import type { EngineHost } from '../hosts/host.ts'
import type { CallOptions, MessageOptions, ReduceOptions, Work } from '../process-group.ts'
import {
  checkAlgorithm,
  checkBuffer,
  checkPeer,
  checkReduction,
  checkRoot,
  checkSlices,
  checkTag,
} from './arguments.ts'
import { CallForms } from './call-forms.ts'
import { ObjectMessages } from './objects.ts'
import type { FollowedWork } from './stepped-work.ts'
import { Submissions } from './submissions.ts'

export interface GroupIdentity {
  readonly id: number
  readonly name: string
  /** Rank of this process in the group. */
  readonly rank: number
  /** World rank of each member. */
  readonly ranks: readonly number[]
  /** Default time-out in milliseconds. */
  readonly timeout: number
}

/** The process group on an engine: checks the arguments, places the buffers, submits. */
export class EngineProcessGroup extends CallForms {
  readonly name: string
  readonly rank: number
  readonly size: number
  readonly ranks: readonly number[]
  readonly #id: number
  readonly #host: EngineHost
  readonly #submissions: Submissions
  readonly #onDestroyed: () => Promise<void>
  readonly #objects: ObjectMessages
  #destroyed = false

  constructor(identity: GroupIdentity, host: EngineHost, onDestroyed: () => Promise<void>) {
    super()
    this.#id = identity.id
    this.name = identity.name
    this.rank = identity.rank
    this.ranks = identity.ranks
    this.size = identity.ranks.length
    this.#host = host
    this.#submissions = new Submissions(identity, host)
    this.#onDestroyed = onDestroyed
    this.#objects = new ObjectMessages(this)
    host.addGroup(identity.id, identity.name, identity.ranks)
  }

  alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
    return this.#host.arena.alloc(dtype, length)
  }

  free(buffer: AnyTypedArray): void {
    this.#host.arena.free(buffer)
  }

  send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
    return this.#message('send', buffer, to, checkTag(options?.tag ?? 0), options)
  }

  recv(buffer: AnyTypedArray, from: number, options?: MessageOptions): Work {
    return this.#message('recv', buffer, from, checkTag(options?.tag ?? 0), options)
  }

  broadcast(buffer: AnyTypedArray, root: number, options?: CallOptions): Work {
    return this.broadcastAt(buffer, root, undefined, options)
  }

  /** A broadcast with a sequence that was reserved before; for object messages. */
  broadcastAt(
    buffer: AnyTypedArray,
    root: number,
    sequence: number | undefined,
    options?: CallOptions,
  ): FollowedWork<void> {
    checkRoot('broadcast', this, root)
    return this.#submissions.submit({
      name: 'broadcast',
      dtype: checkBuffer('broadcast', 'buffer', buffer),
      count: buffer.length,
      input: this.rank === root ? buffer : undefined,
      output: buffer,
      peer: root,
      options,
      ...(sequence === undefined ? {} : { sequence }),
    })
  }

  reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Work {
    checkRoot('reduce', this, root)
    return this.#reduction('reduce', buffer, root, options)
  }

  allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work {
    return this.#reduction('allReduce', buffer, 0, options)
  }

  reduceScatter(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): Work {
    const dtype = checkSlices(
      'reduceScatter',
      this.size,
      { name: 'input', buffer: input },
      { name: 'output', buffer: output },
    )
    return this.#submissions.submit({
      name: 'reduceScatter',
      dtype,
      count: output.length,
      input,
      output,
      reduction: checkReduction(options?.op ?? 'sum'),
      algorithm: checkAlgorithm('reduceScatter', options?.algorithm ?? 'auto'),
      options,
    })
  }

  allGather(output: AnyTypedArray, input: AnyTypedArray, options?: CallOptions): Work {
    return this.allGatherAt(output, input, undefined, options)
  }

  /** An all-gather with a sequence that was reserved before; for object messages. */
  allGatherAt(
    output: AnyTypedArray,
    input: AnyTypedArray,
    sequence: number | undefined,
    options?: CallOptions,
  ): FollowedWork<void> {
    const dtype = checkSlices(
      'allGather',
      this.size,
      { name: 'output', buffer: output },
      { name: 'input', buffer: input },
    )
    return this.#submissions.submit({
      name: 'allGather',
      dtype,
      count: input.length,
      input,
      output,
      options,
      ...(sequence === undefined ? {} : { sequence }),
    })
  }

  barrier(options?: CallOptions): Work {
    return this.#submissions.submit({
      name: 'barrier',
      dtype: 'float32',
      count: 0,
      input: undefined,
      output: undefined,
      options,
    })
  }

  sendObject(value: unknown, to: number, options?: MessageOptions): Work {
    return this.#objects.send(value, to, options)
  }

  recvObject(from: number, options?: MessageOptions): Work<unknown> {
    return this.#objects.receive(from, options)
  }

  broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T> {
    checkRoot('broadcastObject', this, root)
    return this.#objects.broadcast(value, root, options)
  }

  allGatherObject<T>(value: T, options?: CallOptions): Work<T[]> {
    return this.#objects.allGather(value, options)
  }

  async destroy(): Promise<void> {
    if (this.#destroyed) return
    this.#destroyed = true
    await this.#submissions.finish()
    this.#host.removeGroup(this.#id)
    await this.#onDestroyed()
  }

  /** Reserves the next `count` positions among the group's collectives. */
  reserveSequences(count: number): number {
    return this.#submissions.reserveSequences(count)
  }

  /** A message with any tag, also those above the user's. */
  messageAt(
    name: 'send' | 'recv',
    buffer: AnyTypedArray,
    peer: number,
    tag: number,
    options?: CallOptions,
  ): FollowedWork<void> {
    return this.#message(name, buffer, peer, tag, options)
  }

  /** Throws the next message away. */
  skipMessage(from: number, tag: number): void {
    this.#submissions.submit({
      name: 'recv',
      dtype: 'int32',
      count: SKIPPED,
      input: undefined,
      output: undefined,
      peer: from,
      tag,
      options: undefined,
    })
  }

  #message(
    name: 'send' | 'recv',
    buffer: AnyTypedArray,
    peer: number,
    tag: number,
    options: CallOptions | undefined,
  ): FollowedWork<void> {
    checkPeer(name, this, peer)
    return this.#submissions.submit({
      name,
      dtype: checkBuffer(name, 'buffer', buffer),
      count: buffer.length,
      input: name === 'send' ? buffer : undefined,
      output: name === 'recv' ? buffer : undefined,
      peer,
      tag,
      options,
    })
  }

  #reduction(
    name: 'reduce' | 'allReduce',
    buffer: AnyTypedArray,
    peer: number,
    options: ReduceOptions | undefined,
  ): Work {
    return this.#submissions.submit({
      name,
      dtype: checkBuffer(name, 'buffer', buffer),
      count: buffer.length,
      input: buffer,
      output: buffer,
      peer,
      reduction: checkReduction(options?.op ?? 'sum'),
      algorithm: checkAlgorithm(name, options?.algorithm ?? 'auto'),
      options,
    })
  }
}
