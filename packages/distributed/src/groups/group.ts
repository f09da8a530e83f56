import type { SpanRecorder } from '@tsrun/telemetry'
import type { LinkStatistics } from '../diagnosis/link-counters.ts'
import type { AnyTypedArray, DType, TypedArrayOf } from '../dtype.ts'
import type { Runner } from '../runners/runner.ts'
import type {
  BatchedMessage,
  CallOptions,
  CollectiveOptions,
  MessageOptions,
  MonitoredBarrierOptions,
  ReceivedObject,
  ReduceOptions,
  Source,
  Work,
} from '../process-group.ts'
import { checkRoot, checkTag } from './calls/arguments.ts'
import { startBatch } from './calls/batch.ts'
import { CallForms } from './blocking.ts'
import {
  allGatherCall,
  allToAllCall,
  barrierCall,
  broadcastCall,
  gatherCall,
  monitoredBarrierCall,
  reduceScatterCall,
  reductionCall,
  scatterCall,
} from './calls/collectives.ts'
import { coalescedCall } from './calls/coalesced.ts'
import { batchCalls, recvCall, sendCall } from './calls/messages.ts'
import { ObjectCollectives } from './objects/collectives.ts'
import { ObjectMessages } from './objects/messages.ts'
import { SelfMessages } from './calls/self-messages.ts'
import type { FollowedWork } from './calls/stepped-work.ts'
import { Submissions, type Call } from './calls/operations.ts'
import { allGatherVCall, allToAllVCall, gatherVCall, scatterVCall } from './calls/uneven.ts'

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
  readonly #host: Runner
  readonly #submissions: Submissions
  readonly #onDestroyed: () => Promise<void>
  readonly #objects: ObjectMessages
  readonly #objectCollectives: ObjectCollectives
  readonly #self: SelfMessages
  #destroyed = false

  constructor(identity: GroupIdentity, host: Runner, onDestroyed: () => Promise<void>) {
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
    this.#objectCollectives = new ObjectCollectives(this)
    this.#self = new SelfMessages(identity)
    host.addGroup(identity.id, identity.name, identity.ranks)
    host.journal.groups.set(identity.id, identity)
  }

  alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
    return this.#host.arena.alloc(dtype, length)
  }

  free(buffer: AnyTypedArray): void {
    this.#host.arena.free(buffer)
  }

  convert(to: AnyTypedArray, from: AnyTypedArray, factor = 1): void {
    this.#host.arena.convert(to, from, factor)
  }

  send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
    return this.message(sendCall(this, buffer, to, checkTag(options?.tag ?? 0), options))
  }

  recv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number> {
    return this.messageFor(recvCall(this, buffer, from, checkTag(options?.tag ?? 0), options))
  }

  batchIsendIrecv(messages: readonly BatchedMessage[], options?: CallOptions): Work<unknown>[] {
    return startBatch(batchCalls(this, messages, options), options, (call) =>
      call.name === 'send' ? this.message(call) : this.messageFor(call),
    )
  }

  broadcast(buffer: AnyTypedArray, root: number, options?: CollectiveOptions): Work {
    return this.submit(broadcastCall(this, buffer, root, options))
  }

  reduce(buffer: AnyTypedArray, root: number, options?: ReduceOptions): Work {
    checkRoot('reduce', this, root)
    return this.submit(reductionCall('reduce', buffer, root, options))
  }

  allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work {
    return this.submit(reductionCall('allReduce', buffer, 0, options))
  }

  allReduceCoalesced(buffers: readonly AnyTypedArray[], options?: ReduceOptions): Work {
    return this.submit(coalescedCall(this.#host.arena, buffers, options))
  }

  reduceScatter(output: AnyTypedArray, input: AnyTypedArray, options?: ReduceOptions): Work {
    return this.submit(reduceScatterCall(this, output, input, options))
  }

  allGather(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): Work {
    return this.submit(allGatherCall(this, output, input, options))
  }

  allGatherV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    counts: readonly number[],
    options?: CollectiveOptions,
  ): Work {
    return this.submit(allGatherVCall(this, output, input, counts, options))
  }

  gather(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    root: number,
    options?: CollectiveOptions,
  ): Work {
    return this.submit(gatherCall(this, output, input, root, options))
  }

  gatherV(
    output: AnyTypedArray | null,
    input: AnyTypedArray,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): Work {
    return this.submit(gatherVCall(this, output, input, counts, root, options))
  }

  scatter(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    root: number,
    options?: CollectiveOptions,
  ): Work {
    return this.submit(scatterCall(this, output, input, root, options))
  }

  scatterV(
    output: AnyTypedArray,
    input: AnyTypedArray | null,
    counts: readonly number[] | null,
    root: number,
    options?: CollectiveOptions,
  ): Work {
    return this.submit(scatterVCall(this, output, input, counts, root, options))
  }

  allToAll(output: AnyTypedArray, input: AnyTypedArray, options?: CollectiveOptions): Work {
    return this.submit(allToAllCall(this, output, input, options))
  }

  allToAllV(
    output: AnyTypedArray,
    input: AnyTypedArray,
    outputCounts: readonly number[],
    inputCounts: readonly number[],
    options?: CollectiveOptions,
  ): Work {
    return this.submit(allToAllVCall(this, output, input, outputCounts, inputCounts, options))
  }

  barrier(options?: CollectiveOptions): Work {
    return this.submit(barrierCall(options))
  }

  monitoredBarrier(options?: MonitoredBarrierOptions): Work {
    return this.submit(monitoredBarrierCall(this, options))
  }

  sendObject(value: unknown, to: number, options?: MessageOptions): Work {
    return this.#objects.send(value, to, options)
  }

  recvObject(from: number, options?: MessageOptions): Work<unknown>
  recvObject(from: 'any' | null, options?: MessageOptions): Work<ReceivedObject>
  recvObject(from: Source, options?: MessageOptions): Work<unknown> {
    return from === 'any' || from === null
      ? this.#objects.receiveAny(options)
      : this.#objects.receive(from, options)
  }

  broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T> {
    return this.#objectCollectives.broadcast(value, root, options)
  }

  allGatherObject<T>(value: T, options?: CallOptions): Work<T[]> {
    return this.#objectCollectives.allGather(value, options)
  }

  gatherObject<T>(value: T, root: number, options?: CallOptions): Work<T[] | undefined> {
    return this.#objectCollectives.gather(value, root, options)
  }

  scatterObject<T>(values: readonly T[] | null, root: number, options?: CallOptions): Work<T> {
    return this.#objectCollectives.scatter(values, root, options)
  }

  allToAllObject<T>(values: readonly T[], options?: CallOptions): Work<T[]> {
    return this.#objectCollectives.allToAll(values, options)
  }

  async destroy(): Promise<void> {
    if (this.#destroyed) return
    this.#destroyed = true
    this.#self.finish()
    await this.#submissions.finish()
    this.#host.removeGroup(this.#id)
    this.#host.journal.groups.delete(this.#id)
    await this.#onDestroyed()
  }

  linkStatistics(): LinkStatistics[] {
    const { journal, transport } = this.#host
    const stream = transport === 'shared-memory' ? 'tcp' : transport
    return [...this.ranks.entries()]
      .filter(([peer]) => peer !== this.rank)
      .map(([peer, worldRank]) => journal.counters.read(worldRank, peer, stream))
  }

  reportProgress({ step, loss }: { readonly step: number; readonly loss?: number }): void {
    const { status } = this.#host.journal
    status?.set('step', step)
    if (loss !== undefined) status?.set('loss', loss)
  }

  recordSpans(recorder: SpanRecorder | undefined): void {
    this.#host.journal.spans = recorder
  }

  dumpFlight(directory?: string): string {
    return this.#host.journal.dump(directory)
  }

  /** Reserves the next `count` positions among the group's collectives. */
  reserveSequences(count: number): number {
    return this.#submissions.reserveSequences(count)
  }

  /** Starts a checked call; with a sequence that was reserved before, or the next. */
  submit(call: Call, sequence?: number): FollowedWork<void> {
    return this.#submissions.submit(sequence === undefined ? call : { ...call, sequence })
  }

  /** Starts a message whose end is all that matters. */
  message(call: Call): FollowedWork<void> {
    if (call.peer !== this.rank) return this.#submissions.submit(call)
    this.#submissions.checkOpen(call.name)
    return this.#self.send(call)
  }

  /** Starts a receive; resolves to the rank of its source. */
  messageFor(call: Call): FollowedWork<number> {
    const { peer = 0 } = call
    if (peer !== this.rank) return this.#submissions.submitFor(call, (table) => table[0] ?? peer)
    this.#submissions.checkOpen(call.name)
    return this.#self.receive(call)
  }
}
