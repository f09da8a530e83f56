import { tsrError, type TsrError } from '@tsrun/core'
import { addressOf, yieldCore } from '@tsrun/native'
import { createArena } from '../arena/arena.ts'
import { heapOf } from '../arena/heap.ts'
import { createEpochs } from '../shared/epochs.ts'
import { instantiateKernels } from '../kernels/kernels.ts'
import type { Operation } from '../operation.ts'
import type { Ticket, TicketDriver } from '../ticket.ts'
import type { Endpoint } from '../transports/dialer.ts'
import { copyFrom, hostsOf, openShared } from '../transports/shared-memory/neighbours.ts'
import { EXPOSING_GROUPS } from '../transports/shared-memory/slots.ts'
import { createThread, LEAVE_TIME } from './engine-thread.ts'
import { haveCores, type ConnectOptions } from './open-transport.ts'
import { destroyedError, type Runner, type RunnerOptions } from './runner.ts'
import { createCallingThread, type CallingThread } from './calling-thread/calling-thread.ts'
import type { GroupMessage } from './worker-messages.ts'
import {
  commandAt,
  commandKinds,
  COMMANDS,
  control,
  createSharedState,
  SLOTS,
  slotStates,
  writeOperation,
} from './worker-memory.ts'

/** Number of polls of a slot before the main thread sleeps. */
const SPINS = 50
/** Longest sleep in milliseconds between checks that the engine's thread runs. */
const SLICE = 1000

/**
 * Runs the engine in a worker thread, so that messages move while the main thread computes. Connects
 * the engine to the other ranks, as `start` in engine-thread.ts documents.
 */
export async function startWorkerRunner(
  options: RunnerOptions,
  exchange: (endpoint: Endpoint) => Promise<ConnectOptions>,
  signal?: AbortSignal,
): Promise<Runner> {
  const { memory, rank, worldSize, journal } = options
  const heap = heapOf(memory)
  const arena = createArena(heap, rank)
  const epochs = createEpochs(EXPOSING_GROUPS)
  const shared = createSharedState()
  const { control: words, commands, states, timings } = shared
  const gone = new Int32Array(new SharedArrayBuffer(4 * worldSize))
  const tickets: (Ticket | undefined)[] = []
  const freeSlots = Array.from({ length: SLOTS }, (_, i) => SLOTS - 1 - i)
  let listeners = 0
  let isStopped = false
  let isDead = false
  let closing: Promise<void> | undefined

  const failAll = (): void => {
    isDead = true
    for (const ticket of tickets) {
      if (ticket === undefined) continue
      Atomics.compareExchange(states, ticket.slot, slotStates.running, slotStates.failed)
      Atomics.notify(states, ticket.slot)
    }
  }

  const input = { ...options, shared, journal: journal.shared, gone, epochs }
  const thread = createThread(input, words, failAll)

  const deathOr = (what: string): TsrError =>
    thread.death() ?? tsrError('ERR_TSR_INTERNAL', { what })

  /**
   * Writes a command for the engine's thread. If the thread has ended, fails all operations and
   * returns false.
   *
   * @param operation - the argument of `start`
   */
  const command = (kind: number, slot: number, operation?: Operation): boolean => {
    const written = words[control.written]!
    while (!isDead) {
      const read = Atomics.load(words, control.read)
      if (((written - read) | 0) < COMMANDS) {
        const at = commandAt(written >>> 0)
        commands[at] = kind
        commands[at + 1] = slot
        if (operation !== undefined) writeOperation(commands, at, operation)
        Atomics.store(words, control.written, (written + 1) | 0)
        if (Atomics.load(words, control.parked) === 1) thread.wake()
        return true
      }
      thread.wake()
      const end = Atomics.wait(words, control.read, read, SLICE)
      if (end === 'timed-out' && thread.isGone()) failAll()
    }
    failAll()
    return false
  }

  const changeGroup = (message: GroupMessage): boolean => {
    thread.post(message)
    return command(commandKinds.changeGroup, 0)
  }

  /** Whether a slot is free, beyond those kept for receives that wait on the calling thread. */
  const hasRoom = (): boolean => {
    const waiting = callingThread?.pendingReceives() ?? 0
    // Reading `isSettled` frees the slots of settled tickets.
    if (freeSlots.length <= waiting) tickets.filter((ticket) => ticket?.isSettled)
    return freeSlots.length > waiting
  }

  const takeSlot = (): number => {
    if (!hasRoom()) throw tsrError('ERR_TSR_TOO_MANY_OPERATIONS', { rank, limit: SLOTS })
    const slot = freeSlots.pop()!
    Atomics.store(states, slot, slotStates.running)
    return slot
  }

  /** Settles a ticket whose run has ended, and frees its slot. */
  const collect = (ticket: Ticket): void => {
    const { slot } = ticket
    const state = Atomics.load(states, slot)
    if (state === slotStates.running) return
    const error =
      state === slotStates.failed
        ? (thread.failureOf(slot) ?? deathOr('an operation failed without a reason'))
        : undefined
    const at = 3 * slot
    ticket.settle(error, timings[at]!, timings[at + 1]!, timings[at + 2]!)
    tickets[slot] = undefined
    Atomics.store(states, slot, slotStates.free)
    freeSlots.push(slot)
  }

  const driver: TicketDriver = {
    /** If the engine's thread has ended, the ticket fails at once. */
    start(ticket, operation) {
      callingThread?.flushBefore(operation)
      const slot = takeSlot()
      ticket.begin(driver, operation)
      ticket.slot = slot
      tickets[slot] = ticket
      command(commandKinds.start, slot, operation)
    },
    collect,
    poll: collect,
    notify(ticket, callback, isAwaited) {
      const waiting = Atomics.waitAsync(states, ticket.slot, slotStates.running)
      if (!waiting.async) {
        queueMicrotask(callback)
        return
      }
      if (isAwaited && listeners++ === 0) thread.hold(true)
      void waiting.value.then(() => {
        if (isAwaited && --listeners === 0) thread.hold(false)
        // Ignore a late wake-up for the previous operation in this slot.
        if (ticket.driver !== driver || ticket.isSettled) callback()
        else driver.notify(ticket, callback, isAwaited)
      })
    },
    block(ticket) {
      for (let i = 0; i < SPINS; i++) {
        if (Atomics.load(states, ticket.slot) !== slotStates.running) return
        if (ready.doorbell !== undefined) yieldCore()
      }
      while (Atomics.load(states, ticket.slot) === slotStates.running) {
        const end = Atomics.wait(states, ticket.slot, slotStates.running, SLICE)
        if (end === 'timed-out' && thread.isGone()) failAll()
      }
    },
    abort({ slot }) {
      command(commandKinds.abort, slot)
    },
  }

  const stop = (how: 1 | 2): void => {
    if (isStopped) return
    isStopped = true
    thread.stop(how)
  }

  const onExit = (code: number): void => {
    if (code !== 0) journal.dumpFailure(`the process exits with code ${code}`)
    stop(code === 0 ? 1 : 2)
    if (!thread.isGone()) Atomics.wait(words, control.closed, 0, LEAVE_TIME)
  }

  let connection: ConnectOptions | undefined
  const learn = async (endpoint: Endpoint): Promise<ConnectOptions> =>
    (connection = await exchange(endpoint))
  const ready = await thread.start(learn, signal)
  const { sharing, place } = connection!
  const openCallingThread = (): CallingThread | undefined => {
    if (sharing === undefined) return undefined
    const kernels = instantiateKernels(memory)
    const { heaps } = ready
    const base = addressOf(heap.bytes)
    return createCallingThread({
      ...openShared(heap, kernels, rank, sharing, haveCores(1, { place })),
      kernels,
      rank,
      hosts: hostsOf(sharing),
      epochs,
      get:
        heaps &&
        ((peer, at, from, bytes) => {
          copyFrom(heaps[peer]!, from, base + at, bytes)
        }),
      isIdle: () => !isDead && Atomics.load(words, control.read) === words[control.written],
      arena,
      journal,
      place,
      engine: driver,
      hasRoom,
    })
  }
  const callingThread = openCallingThread()
  /** Whether there are enough cores for the engine's thread and the calling thread. */
  const hasOwnCore = callingThread === undefined || haveCores(2, { place })
  process.on('exit', onExit)

  const leave = async (): Promise<void> => {
    process.off('exit', onExit)
    stop(1)
    await thread.end(LEAVE_TIME + SLICE)
  }

  return {
    transport: sharing === undefined ? options.transport : 'shared-memory',
    arena,
    journal,
    gone: () => gone,
    addGroup(id, name, ranks) {
      if (isStopped) throw destroyedError('newGroup')
      if (!changeGroup({ id, name, ranks })) throw deathOr('it takes no commands')
      callingThread?.addGroup(id, name, ranks)
    },
    removeGroup(id) {
      if (isStopped) return
      callingThread?.removeGroup(id)
      changeGroup({ id })
    },
    failGroup(id, reason) {
      if (!isStopped) changeGroup({ id, reason })
    },
    driverOf(operation) {
      if (isStopped) throw destroyedError(operation.name)
      return callingThread?.driver ?? driver
    },
    prefersCaller: (operation) => !hasOwnCore && callingThread.runs(operation),
    close: async () => {
      closing ??= leave()
      await closing
    },
  }
}
