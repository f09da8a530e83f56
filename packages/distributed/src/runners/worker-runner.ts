import { tsrError, type TsrError } from '@tsrun/core'
import { addressOf, yieldCore } from '@tsrun/native'
import { Arena } from '../arena/arena.ts'
import { heapOf } from '../arena/heap.ts'
import { createEpochs } from '../shared/epochs.ts'
import { instantiateKernels } from '../kernels/kernels.ts'
import type { Journal } from '../diagnosis/journal.ts'
import type { Operation } from '../operation.ts'
import type { Ticket, TicketDriver } from '../ticket.ts'
import type { Endpoint } from '../transports/dialer.ts'
import { copyFrom, hostsOf, openShared } from '../transports/shared-memory/neighbours.ts'
import { EXPOSING_GROUPS } from '../transports/shared-memory/slots.ts'
import { createThread, LEAVE_TIME, type EngineThread } from './engine-thread.ts'
import { haveCores, type ConnectOptions } from './open-transport.ts'
import { destroyedError, type Runner, type RunnerOptions } from './runner.ts'
import { CallingThread } from './calling-thread/calling-thread.ts'
import {
  commandAt,
  commandKinds,
  COMMANDS,
  control,
  sharedBytes,
  sharedStateOf,
  SLOTS,
  slotStates,
  writeOperation,
  type SharedState,
} from './worker-memory.ts'

/**
 * Number of times to poll a slot before the main thread sleeps. Short operations then need no
 * wake-up.
 */
const SPINS = 50
/**
 * Longest sleep of the main thread in milliseconds. After each sleep it checks whether the engine's
 * thread has ended.
 */
const SLICE = 1000

/** Runs the engine in a worker thread, so that messages move while the main thread computes. */
export class WorkerRunner implements Runner, TicketDriver {
  readonly kind = 'worker'
  transport: string
  readonly arena: Arena
  readonly journal: Journal
  readonly gone: Int32Array
  readonly #options: RunnerOptions
  readonly #epochs = createEpochs(EXPOSING_GROUPS)
  #callingThread: CallingThread | undefined
  /** Whether there are enough cores for the engine's thread and the calling thread. */
  #hasOwnCore = true
  readonly #rank: number
  readonly #thread: EngineThread
  readonly #shared: SharedState
  readonly #tickets: (Ticket | undefined)[] = []
  readonly #freeSlots: number[] = Array.from({ length: SLOTS }, (_, i) => SLOTS - 1 - i)
  #listeners = 0
  #stopped = false
  #isDead = false
  #closing: Promise<void> | undefined
  readonly #onExit = (code: number): void => {
    if (code !== 0) this.journal.dumpFailure(`the process exits with code ${code}`)
    this.#stop(code === 0 ? 1 : 2)
    if (!this.#thread.isGone()) Atomics.wait(this.#shared.control, control.closed, 0, LEAVE_TIME)
  }

  constructor(options: RunnerOptions) {
    const { memory, rank, transport, journal } = options
    this.transport = transport
    this.#options = options
    this.#rank = rank
    this.arena = new Arena(heapOf(memory), rank)
    this.journal = journal
    const shared = new SharedArrayBuffer(sharedBytes())
    this.#shared = sharedStateOf(shared)
    this.gone = new Int32Array(new SharedArrayBuffer(4 * options.worldSize))
    const { gone } = this
    const epochs = this.#epochs
    const input = { ...options, shared, journal: journal.shared, gone, epochs }
    this.#thread = createThread(input, this.#shared.control, () => {
      this.#failAll()
    })
  }

  /** Starts the engine's thread and connects the engine, as `start` of the thread documents. */
  async open(
    exchange: (endpoint: Endpoint) => Promise<ConnectOptions>,
    signal?: AbortSignal,
  ): Promise<void> {
    let connect: ConnectOptions | undefined
    const exchanged = async (endpoint: Endpoint): Promise<ConnectOptions> => {
      connect = await exchange(endpoint)
      if (connect.sharing !== undefined) this.transport = 'shared-memory'
      return connect
    }
    await this.#thread.start(exchanged, signal)
    if (connect !== undefined) this.#callingThread = this.#createCallingThread(connect)
    process.on('exit', this.#onExit)
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    if (this.#stopped) throw destroyedError('newGroup')
    this.#thread.post({ id, name, ranks })
    const isTaken = this.#command(commandKinds.addGroup, 0, () => undefined)
    if (!isTaken) throw this.#deathOr('it takes no commands')
    this.#callingThread?.addGroup(id, name, ranks)
  }

  removeGroup(id: number): void {
    if (this.#stopped) return
    this.#callingThread?.removeGroup(id)
    this.#command(commandKinds.removeGroup, 0, (commands, at) => {
      commands[at + 2] = id
    })
  }

  failGroup(id: number, reason: string): void {
    if (this.#stopped) return
    this.#thread.post({ id, reason })
    this.#command(commandKinds.failGroup, 0, () => undefined)
  }

  driverOf(operation: Operation, isAwaited: boolean): TicketDriver {
    if (this.#stopped) throw destroyedError(operation.name)
    const here = this.#callingThread
    return here?.runs(operation, isAwaited) === true ? here : this
  }

  prefersCaller(operation: Operation): boolean {
    return !this.#hasOwnCore && this.#callingThread?.runs(operation, true) === true
  }

  /** Starts an operation. If the engine's thread has ended, the ticket fails at once. */
  start(ticket: Ticket, operation: Operation): void {
    this.#callingThread?.flushBefore(operation)
    const slot = this.#takeSlot()
    ticket.begin(this, operation)
    ticket.slot = slot
    this.#tickets[slot] = ticket
    this.#command(commandKinds.start, slot, (commands, at) => {
      writeOperation(commands, at, operation)
    })
  }

  /** Settles the ticket and frees its slot, if the operation has ended. */
  collect(ticket: Ticket): void {
    const { slot } = ticket
    const { states, timings } = this.#shared
    const state = Atomics.load(states, slot)
    if (state === slotStates.running) return
    const error = state === slotStates.failed ? this.#failureOf(slot) : undefined
    const at = 3 * slot
    ticket.settle(error, timings[at]!, timings[at + 1]!, timings[at + 2]!)
    this.#tickets[slot] = undefined
    Atomics.store(states, slot, slotStates.free)
    this.#freeSlots.push(slot)
  }

  poll(ticket: Ticket): void {
    this.collect(ticket)
  }

  /** Does nothing, because the engine has its own thread. */
  spinBriefly(): void {
    return undefined
  }

  notify(ticket: Ticket, callback: () => void, isAwaited: boolean): void {
    const waiting = Atomics.waitAsync(this.#shared.states, ticket.slot, slotStates.running)
    if (!waiting.async) {
      queueMicrotask(callback)
      return
    }
    if (isAwaited && this.#listeners++ === 0) this.#thread.hold(true)
    void waiting.value.then(() => {
      if (isAwaited && --this.#listeners === 0) this.#thread.hold(false)
      // Ignore a late wake-up for the previous operation in this slot.
      if (ticket.driver !== this || ticket.isSettled) callback()
      else this.notify(ticket, callback, isAwaited)
    })
  }

  block(ticket: Ticket): void {
    const { states } = this.#shared
    for (let i = 0; i < SPINS; i++) {
      if (Atomics.load(states, ticket.slot) !== slotStates.running) return
      if (this.#thread.doorbell !== undefined) yieldCore()
    }
    while (Atomics.load(states, ticket.slot) === slotStates.running) {
      const end = Atomics.wait(states, ticket.slot, slotStates.running, SLICE)
      if (end === 'timed-out' && this.#thread.isGone()) this.#failAll()
    }
  }

  abort({ slot }: Ticket): void {
    this.#command(commandKinds.abort, slot, () => undefined)
  }

  async close(): Promise<void> {
    this.#closing ??= this.#close()
    await this.#closing
  }

  async #close(): Promise<void> {
    process.off('exit', this.#onExit)
    this.#stop(1)
    await this.#thread.end(LEAVE_TIME + SLICE)
  }

  #createCallingThread({ sharing, place }: ConnectOptions): CallingThread | undefined {
    const { memory, rank, journal, tuning } = this.#options
    // Call sites are sent to all ranks as messages under `detail`. Only the engine can send
    // messages.
    if (sharing === undefined || journal.owner.settings.detail) return undefined
    this.#hasOwnCore = haveCores(2, { place })
    const heap = heapOf(memory)
    const kernels = instantiateKernels(memory)
    const { control: words } = this.#shared
    const { heaps } = this.#thread
    const base = addressOf(heap.bytes)
    return new CallingThread({
      ...openShared(heap, kernels, rank, sharing, haveCores(1, { place })),
      kernels,
      rank,
      hosts: hostsOf(sharing),
      tuning,
      epochs: this.#epochs,
      get:
        heaps &&
        ((peer, at, from, bytes) => {
          copyFrom(heaps[peer]!, from, base + at, bytes)
        }),
      isIdle: () => !this.#isDead && Atomics.load(words, control.read) === words[control.written],
      arena: this.arena,
      journal,
      place,
      engine: this,
      hasRoom: () => this.#hasRoom(),
    })
  }

  #stop(how: 1 | 2): void {
    if (this.#stopped) return
    this.#stopped = true
    this.#thread.stop(how)
  }

  /**
   * Writes a command for the engine's thread. If the thread has ended, fails all operations and
   * returns false.
   */
  #command(
    kind: number,
    slot: number,
    fill: (commands: Float64Array, at: number) => void,
  ): boolean {
    const { control: words, commands } = this.#shared
    const written = words[control.written]!
    while (!this.#isDead) {
      const read = Atomics.load(words, control.read)
      if (((written - read) | 0) < COMMANDS) {
        const at = commandAt(written >>> 0)
        commands[at] = kind
        commands[at + 1] = slot
        fill(commands, at)
        Atomics.store(words, control.written, (written + 1) | 0)
        if (Atomics.load(words, control.parked) === 1) this.#thread.wake()
        return true
      }
      this.#thread.wake()
      const end = Atomics.wait(words, control.read, read, SLICE)
      if (end === 'timed-out' && this.#thread.isGone()) this.#failAll()
    }
    this.#failAll()
    return false
  }

  #failAll(): void {
    this.#isDead = true
    const { states } = this.#shared
    for (const ticket of this.#tickets) {
      if (ticket === undefined) continue
      Atomics.compareExchange(states, ticket.slot, slotStates.running, slotStates.failed)
      Atomics.notify(states, ticket.slot)
    }
  }

  /** Whether a slot is free besides those of the receives that wait on the calling thread. */
  #hasRoom(): boolean {
    const waiting = this.#callingThread?.pendingReceives ?? 0
    // Reading `isSettled` frees the slots of settled tickets.
    if (this.#freeSlots.length <= waiting) this.#tickets.filter((ticket) => ticket?.isSettled)
    return this.#freeSlots.length > waiting
  }

  #takeSlot(): number {
    if (!this.#hasRoom()) {
      throw tsrError('ERR_TSR_TOO_MANY_OPERATIONS', { rank: this.#rank, limit: SLOTS })
    }
    const slot = this.#freeSlots.pop()!
    Atomics.store(this.#shared.states, slot, slotStates.running)
    return slot
  }

  #failureOf(slot: number): TsrError {
    return this.#thread.failureOf(slot) ?? this.#deathOr('an operation failed without a reason')
  }

  #deathOr(what: string): TsrError {
    return this.#thread.death() ?? tsrError('ERR_TSR_INTERNAL', { what })
  }
}
