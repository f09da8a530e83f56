import { once } from 'node:events'
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads'
import { Deadline, reviveTsrError, tsrError, waitOrAbort, type TsrError } from '@tsrun/core'
import { signalEventfd, yieldCore } from '@tsrun/native'
import type { Ladders } from '../../algorithms/ladders.ts'
import { Arena } from '../../arena/arena.ts'
import { heapOf } from '../../arena/heap.ts'
import type { Journal } from '../../diagnosis/journal.ts'
import type { Operation } from '../../engine/operation.ts'
import type { WorkTiming } from '../../process-group.ts'
import type { ListenOptions } from '../../transports/connect/listen.ts'
import type { Endpoint } from '../../transports/connect/mesh.ts'
import type { ConnectOptions, StreamName } from '../../transports/open-transport.ts'
import { destroyedError, type EngineHost, type Ticket } from '../host.ts'
import type {
  ConnectMessage,
  FailureMessage,
  GroupFailureMessage,
  StartMessage,
  WorkerInput,
} from './messages.ts'
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
} from './shared-state.ts'
import { WorkerTicket } from './worker-ticket.ts'

export interface WorkerHostOptions {
  readonly memory: WebAssembly.Memory
  readonly rank: number
  readonly worldSize: number
  readonly transport: StreamName
  readonly listen: ListenOptions
  readonly journal: Journal
  readonly ladders: Ladders
}

/** Looks at the slot before sleeping: an answer within microseconds needs no wake-up. */
const SPINS = 50
/** Milliseconds of one sleep of the main thread. */
const SLICE = 1000
/** Milliseconds that leaving may take. */
const LEAVE_TIME = 3000

/** Runs the engine in a worker thread, so that messages move while the main thread computes. */
export class WorkerHost implements EngineHost {
  readonly kind = 'worker'
  transport: string
  readonly arena: Arena
  readonly journal: Journal
  readonly gone: Int32Array
  readonly #rank: number
  readonly #worker: Worker
  readonly #port: MessagePort
  readonly #shared: SharedState
  readonly #failures = new Map<number, TsrError>()
  readonly #tickets: (WorkerTicket | undefined)[] = []
  readonly #freeSlots: number[] = Array.from({ length: SLOTS }, (_, i) => SLOTS - 1 - i)
  #doorbell: number | undefined
  #listeners = 0
  #stopped = false
  #closing: Promise<void> | undefined
  readonly #onExit = (code: number): void => {
    if (code !== 0) this.journal.dumpFailure(`the process exits with code ${code}`)
    this.#stop(code === 0 ? 1 : 2)
    Atomics.wait(this.#shared.control, control.closed, 0, LEAVE_TIME)
  }

  constructor(options: WorkerHostOptions) {
    const { memory, rank, transport, journal } = options
    this.transport = transport
    this.#rank = rank
    this.arena = new Arena(heapOf(memory), rank)
    this.journal = journal
    const shared = new SharedArrayBuffer(sharedBytes())
    this.#shared = sharedStateOf(shared)
    const { port1, port2 } = new MessageChannel()
    this.#port = port1
    this.gone = new Int32Array(new SharedArrayBuffer(4 * options.worldSize))
    const { gone } = this
    const input: WorkerInput = { ...options, shared, port: port2, journal: journal.shared, gone }
    this.#worker = new Worker(workerEntry(), {
      workerData: input,
      transferList: [port2],
      execArgv: [],
    })
  }

  /**
   * Starts the worker: `exchange` publishes where it listens and returns all ranks' endpoints.
   *
   * @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_CONNECT, ERR_TSR_ABORTED
   */
  async start(
    exchange: (endpoint: Endpoint) => Promise<ConnectOptions>,
    signal?: AbortSignal,
  ): Promise<void> {
    try {
      const first = await this.#answer()
      if (!('listening' in first)) throw unexpected(first)
      const connect = await exchange(first.listening)
      const answer = this.#answer()
      if (connect.sharing !== undefined) this.transport = 'shared-memory'
      this.#worker.postMessage({ connect } satisfies ConnectMessage)
      const second = await waitOrAbort(answer, 'joining the job', Deadline.never, signal)
      if (!('ready' in second)) throw unexpected(second)
      this.#doorbell = second.ready.doorbell
    } catch (error) {
      await this.#worker.terminate()
      throw error
    }
    this.#worker.unref()
    process.on('exit', this.#onExit)
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    if (this.#stopped) throw destroyedError('newGroup')
    this.#port.postMessage({ id, name, ranks })
    this.#command(commandKinds.addGroup, 0, () => undefined)
  }

  removeGroup(id: number): void {
    if (this.#stopped) return
    this.#command(commandKinds.removeGroup, 0, (commands, at) => {
      commands[at + 2] = id
    })
  }

  failGroup(id: number, reason: string): void {
    if (this.#stopped) return
    this.#port.postMessage({ id, reason } satisfies GroupFailureMessage)
    this.#command(commandKinds.failGroup, 0, () => undefined)
  }

  submit(operation: Operation): Ticket {
    if (this.#stopped) throw destroyedError(operation.name)
    const slot = this.#takeSlot()
    const ticket = new WorkerTicket(this, slot)
    this.#tickets[slot] = ticket
    this.#command(commandKinds.start, slot, (commands, at) => {
      writeOperation(commands, at, operation)
    })
    return ticket
  }

  /** The end of an operation, once; its slot is free again. */
  collect({ slot }: WorkerTicket): { error: TsrError | undefined; timing: WorkTiming } | undefined {
    const { states, timings } = this.#shared
    const state = Atomics.load(states, slot)
    if (state === slotStates.running) return undefined
    const timing = {
      posted: timings[3 * slot]!,
      started: timings[3 * slot + 1]!,
      completed: timings[3 * slot + 2]!,
    }
    const error = state === slotStates.failed ? this.#takeFailure(slot) : undefined
    this.#tickets[slot] = undefined
    Atomics.store(states, slot, slotStates.free)
    this.#freeSlots.push(slot)
    return { error, timing }
  }

  /** Calls back when the slot's operation has ended; an awaited one keeps the process alive. */
  notify(ticket: WorkerTicket, callback: () => void, isAwaited: boolean): void {
    const waiting = Atomics.waitAsync(this.#shared.states, ticket.slot, slotStates.running)
    if (!waiting.async) {
      queueMicrotask(callback)
      return
    }
    if (isAwaited && this.#listeners++ === 0) this.#worker.ref()
    void waiting.value.then(() => {
      if (isAwaited && --this.#listeners === 0) this.#worker.unref()
      // a late wake-up of the operation that had this slot before says nothing about this one
      if (ticket.isSettled) callback()
      else this.notify(ticket, callback, isAwaited)
    })
  }

  block(ticket: WorkerTicket): void {
    const { states } = this.#shared
    for (let i = 0; i < SPINS; i++) {
      if (Atomics.load(states, ticket.slot) !== slotStates.running) return
      if (this.#doorbell !== undefined) yieldCore()
    }
    while (Atomics.load(states, ticket.slot) === slotStates.running) {
      if (Atomics.load(this.#shared.control, control.closed) === 1) {
        throw tsrError('ERR_TSR_INTERNAL', { what: "the engine's worker has ended" })
      }
      Atomics.wait(states, ticket.slot, slotStates.running, SLICE)
    }
  }

  abort({ slot }: WorkerTicket): void {
    this.#command(commandKinds.abort, slot, () => undefined)
  }

  async close(): Promise<void> {
    this.#closing ??= this.#close()
    await this.#closing
  }

  async #close(): Promise<void> {
    process.off('exit', this.#onExit)
    const exited = once(this.#worker, 'exit')
    this.#worker.ref()
    this.#stop(1)
    const timer = setTimeout(() => void this.#worker.terminate(), LEAVE_TIME + SLICE)
    await exited
    clearTimeout(timer)
    this.#port.close()
  }

  #stop(how: 1 | 2): void {
    if (this.#stopped) return
    this.#stopped = true
    Atomics.store(this.#shared.control, control.stop, how)
    this.#wake()
  }

  #wake(): void {
    if (this.#doorbell === undefined) this.#worker.postMessage(0)
    else signalEventfd(this.#doorbell)
  }

  #command(kind: number, slot: number, fill: (commands: Float64Array, at: number) => void): void {
    const { control: words, commands } = this.#shared
    const written = words[control.written]!
    for (;;) {
      const read = Atomics.load(words, control.read)
      if (((written - read) | 0) < COMMANDS) break
      this.#wake()
      Atomics.wait(words, control.read, read, SLICE)
    }
    const at = commandAt(written >>> 0)
    commands[at] = kind
    commands[at + 1] = slot
    fill(commands, at)
    Atomics.store(words, control.written, (written + 1) | 0)
    if (Atomics.load(words, control.parked) === 1) this.#wake()
  }

  #takeSlot(): number {
    // asking a ticket frees the slot of one that has settled
    if (this.#freeSlots.length === 0) this.#tickets.filter((ticket) => ticket?.isSettled)
    const slot = this.#freeSlots.pop()
    if (slot === undefined) {
      throw tsrError('ERR_TSR_TOO_MANY_OPERATIONS', { rank: this.#rank, limit: SLOTS })
    }
    Atomics.store(this.#shared.states, slot, slotStates.running)
    return slot
  }

  #takeFailure(slot: number): TsrError {
    for (;;) {
      const known = this.#failures.get(slot)
      if (known !== undefined) {
        this.#failures.delete(slot)
        return known
      }
      const received = receiveMessageOnPort(this.#port) as { message: FailureMessage } | undefined
      if (received === undefined) {
        return tsrError('ERR_TSR_INTERNAL', { what: 'an operation failed without a reason' })
      }
      this.#failures.set(received.message.slot, reviveTsrError(received.message.error))
    }
  }

  async #answer(): Promise<StartMessage> {
    const [message] = (await once(this.#worker, 'message')) as [StartMessage]
    if ('failed' in message) throw reviveTsrError(message.failed)
    return message
  }
}

function unexpected(message: StartMessage): Error {
  return tsrError('ERR_TSR_INTERNAL', { what: `unexpected ${Object.keys(message).join()}` })
}

/** Workers start from compiled files: loaders for TypeScript do not reach into them everywhere. */
function workerEntry(): URL {
  return new URL('../../../dist/hosts/worker/worker-main.js', import.meta.url)
}
