import { tsrError } from '@tsrun/core'
import { currentTrace, timeSpan, type SpanRecorder } from '../record/spans.ts'
import type { LinkStatistics } from '../diagnosis/journal.ts'
import type { AnyTypedArray, DType, TypedArrayOf } from '../dtype.ts'
import type {
  BatchedMessage,
  JoinOptions,
  NewGroupOptions,
  ProcessGroup,
  Source,
  Work,
} from '../process-group.ts'
import type { CallOptions, MessageOptions } from '../call-options.ts'
import { checkTag, waitOptions } from './calls/arguments.ts'
import { recvCall, sendCall, startBatch } from './calls/messages.ts'
import { createOperations, type GroupIdentity } from './calls/operations.ts'
import { agreeOnGroup, ranksOfColor } from './membership/new-group.ts'
import { agreeOnSurvivors } from './membership/shrink.ts'
import { createWorld, type World, type WorldFacts } from './membership/world.ts'
import { ObjectMessages } from './objects/messages.ts'

const WORLD_ID = 0

/**
 * A process group on an engine. The base classes implement the collectives, and the synchronous and
 * prepared forms.
 */
export class EngineProcessGroup extends ObjectMessages implements ProcessGroup {
  readonly ranks: readonly number[]
  readonly timeout: number
  /** Id of the group in the world. */
  readonly id: number
  readonly #world: World
  #isDestroyed = false

  constructor(world: World, identity: GroupIdentity) {
    const { id, name, rank, ranks, timeout } = identity
    const { runner } = world
    super({ name, rank, size: ranks.length }, createOperations(identity, runner))
    this.ranks = ranks
    this.timeout = timeout
    this.id = id
    this.#world = world
    runner.addGroup(id, name, ranks)
    runner.journal.groups.set(id, identity)
  }

  get world(): World {
    return this.#world
  }

  get next(): number {
    return (this.rank + 1) % this.size
  }

  get previous(): number {
    return (this.rank + this.size - 1) % this.size
  }

  get generation(): number {
    return this.#world.generation
  }

  alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
    return timeSpan(this.spans, 'alloc', { name: 'alloc' }, () =>
      this.operations.arena.alloc(dtype, length),
    )
  }

  allocUnsafe<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
    return timeSpan(this.spans, 'alloc', { name: 'alloc' }, () =>
      this.operations.arena.allocUnsafe(dtype, length),
    )
  }

  free(buffer: AnyTypedArray): void {
    timeSpan(this.spans, 'alloc', { name: 'free' }, () => {
      this.operations.arena.free(buffer)
    })
  }

  convert(to: AnyTypedArray, from: AnyTypedArray, factor = 1): void {
    this.operations.arena.convert(to, from, factor)
  }

  send(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
    return this.operations.start(sendCall(this, buffer, to, checkTag(options?.tag), options))
  }

  recv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number> {
    return this.operations.start(recvCall(this, buffer, from, checkTag(options?.tag), options))
  }

  isend(buffer: AnyTypedArray, to: number, options?: MessageOptions): Work {
    return this.send(buffer, to, options)
  }

  irecv(buffer: AnyTypedArray, from: Source, options?: MessageOptions): Work<number> {
    return this.recv(buffer, from, options)
  }

  batchIsendIrecv(messages: readonly BatchedMessage[], options?: CallOptions): Work<unknown>[] {
    return startBatch(this, this.operations, messages, options)
  }

  globalRank(rank: number): number {
    return this.ranks[rank] ?? this.#refuseRank('globalRank', rank)
  }

  groupRank(worldRank: number): number {
    const rank = this.ranks.indexOf(worldRank)
    return rank < 0 ? this.#refuseRank('groupRank', worldRank) : rank
  }

  async newGroup(ranks: readonly number[], options: NewGroupOptions = {}): Promise<ProcessGroup> {
    const { identity, problem } = await agreeOnGroup(this.#world, this, ranks, options)
    const group = new EngineProcessGroup(this.#world, identity)
    if (problem === undefined) return group
    // Other members may already have made the group. Fail the group on their side, so that they do
    // not wait for this rank.
    this.#world.runner.failGroup(identity.id, problem)
    await group.destroy()
    throw tsrError('ERR_TSR_GROUP_MEMBERS', { problem })
  }

  async split(
    color: number | null,
    key = this.rank,
    options: NewGroupOptions = {},
  ): Promise<ProcessGroup | undefined> {
    const wait = waitOptions(options, this.#world.timeout)
    const ranks = await ranksOfColor(this, color, key, wait)
    if (ranks === undefined) return undefined
    const name = options.name ?? `${this.name}/${String(color)}`
    return await this.newGroup(ranks, { ...options, name })
  }

  async shrink(options: NewGroupOptions = {}): Promise<ProcessGroup> {
    const identity = await agreeOnSurvivors(this.#world, this, options)
    return new EngineProcessGroup(this.#world, identity)
  }

  async reconfigure(options: JoinOptions = {}): Promise<ProcessGroup> {
    return await this.#world.reconfigure(this.name, options)
  }

  async destroy(): Promise<void> {
    if (this.#isDestroyed) return
    this.#isDestroyed = true
    await this.operations.finish()
    const { runner } = this.#world
    runner.removeGroup(this.id)
    runner.journal.groups.delete(this.id)
    if (this.id === WORLD_ID) await this.#world.leave()
    // Rejecting would hide the error of a script that destroys its groups in a `finally` block.
    setTimeout(() => {
      const error = this.operations.unreadError()
      if (error !== undefined) throw error
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy()
  }

  linkStatistics(): LinkStatistics[] {
    const { journal, transport } = this.#world.runner
    const stream = transport === 'shared-memory' ? 'tcp' : transport
    return this.ranks.flatMap((worldRank, peer) =>
      peer === this.rank ? [] : journal.counters.read(worldRank, peer, stream),
    )
  }

  reportProgress({ step, loss, of }: Parameters<ProcessGroup['reportProgress']>[0]): void {
    const { status } = this.#world.runner.journal
    if (of !== undefined) status?.set('of', of)
    if (step === undefined) return
    status?.set('step', step)
    status?.add('steps', 1)
    if (loss !== undefined) status?.set('loss', loss)
    currentTrace()?.endStep(step, loss)
  }

  recordSpans(recorder: SpanRecorder | undefined): void {
    const { journal } = this.#world.runner
    journal.record(recorder)
  }

  get spans(): SpanRecorder | undefined {
    return this.#world.runner.journal.spans
  }

  dumpFlight(directory?: string): string {
    return this.#world.runner.journal.dump(directory)
  }

  #refuseRank(operation: string, peer: number): never {
    const { name: group, size } = this
    throw tsrError('ERR_TSR_RANK_RANGE', { operation, peer, group, size })
  }
}

/** Makes the group of all ranks of a joined world. */
export function createWorldGroup(facts: WorldFacts): EngineProcessGroup {
  const { rank, worldSize, timeout } = facts
  const ranks = Array.from({ length: worldSize }, (_, i) => i)
  const identity = { id: WORLD_ID, name: 'world', rank, ranks, timeout }
  return new EngineProcessGroup(createWorld(facts), identity)
}
