import { readlinkSync } from 'node:fs'
import { parentPort, receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads'
import { isTsrError, tsrError, type SerializedTsrError } from '@tsrun/core'
import { bindAll } from '@tsrun/native'
import { heapOf } from '../arena/heap.ts'
import { diagnose } from '../diagnosis/diagnosis.ts'
import { createEngine, type Engine } from '../engine/engine.ts'
import type { Task } from '../engine/task.ts'
import {
  prepareTransport,
  type ConnectOptions,
  type OpenedTransport,
  type PreparedTransport,
} from './open-transport.ts'
import type { BlockingTransport, EventTransport } from '../transports/transport.ts'
import { leaveOnEvents } from './event-runner.ts'
import { createPollingEngine } from './polling-engine.ts'
import { destroyedError } from './runner.ts'
import {
  ENGINE,
  type GroupMessage,
  type StartCommand,
  type StartMessage,
  type WorkerInput,
} from './worker-messages.ts'
import { commandAt, commandKinds, control, readOperation, slotStates } from './worker-memory.ts'

/*
 * The entry point of the engine's thread. It connects to the other ranks, then runs commands of the
 * main thread until `control.stop` is set.
 */

const input = workerData as WorkerInput
const { shared } = input
const tasks = new Map<number, Task>()
const heap = heapOf(input.memory)
let isReady = false

function tell(message: StartMessage): void {
  parentPort?.postMessage(message)
}

function serialize(error: unknown): SerializedTsrError {
  if (isTsrError(error)) return error.toJSON()
  const what = error instanceof Error ? (error.stack ?? error.message) : String(error)
  return tsrError('ERR_TSR_INTERNAL', { what }).toJSON()
}

function settle(slot: number, task: Task): void {
  tasks.delete(slot)
  shared.timings[3 * slot] = task.posted
  shared.timings[3 * slot + 1] = task.started
  shared.timings[3 * slot + 2] = task.completed
  publish(slot, task.error)
}

function publish(slot: number, error: unknown): void {
  if (error !== undefined) input.port.postMessage({ slot, error: serialize(error) })
  const state = error === undefined ? slotStates.done : slotStates.failed
  Atomics.store(shared.states, slot, state)
  Atomics.notify(shared.states, slot)
}

/** Runs the commands that the main thread has written so far. Returns whether there were any. */
function takeCommands(engine: Engine): boolean {
  const written = Atomics.load(shared.control, control.written)
  const first = shared.control[control.read]!
  if (written === first) return false
  for (let n = first; n !== written; n = (n + 1) | 0) {
    const at = commandAt(n >>> 0)
    const slot = shared.commands[at + 1]!
    try {
      runCommand(engine, at, slot)
    } catch (error) {
      if (shared.commands[at] !== commandKinds.start) throw error
      publish(slot, error)
    }
    Atomics.store(shared.control, control.read, (n + 1) | 0)
  }
  Atomics.notify(shared.control, control.read)
  return true
}

function runCommand(engine: Engine, at: number, slot: number): void {
  const { commands } = shared
  switch (commands[at]) {
    case commandKinds.start: {
      const task = engine.start(readOperation(commands, at), (settled) => {
        settle(slot, settled)
      })
      if (task.state === 'running') tasks.set(slot, task)
      return
    }
    case commandKinds.abort: {
      const task = tasks.get(slot)
      if (task !== undefined) engine.abort(task)
      return
    }
    case commandKinds.changeGroup: {
      const { message } = receiveMessageOnPort(input.port) as { message: GroupMessage }
      if ('ranks' in message) engine.addGroup(message.id, message.name, message.ranks)
      else if ('reason' in message) engine.failGroup(message.id, message.reason)
      else engine.removeGroup(message.id)
      return
    }
    case undefined:
    default:
      throw tsrError('ERR_TSR_INTERNAL', { what: 'unknown command' })
  }
}

function stopRequested(): number {
  return Atomics.load(shared.control, control.stop)
}

function reportClosed(): void {
  Atomics.store(shared.control, control.closed, 1)
  Atomics.notify(shared.control, control.closed)
}

function runBlocking(engine: Engine, transport: BlockingTransport): void {
  const polling = createPollingEngine(engine, transport, (milliseconds) => {
    Atomics.store(shared.control, control.parked, 1)
    const hasCommand =
      Atomics.load(shared.control, control.written) !== shared.control[control.read]
    if (!hasCommand && stopRequested() === 0) transport.sleep(milliseconds)
    Atomics.store(shared.control, control.parked, 0)
  })
  polling.runUntil(() => {
    takeCommands(engine)
    return stopRequested() !== 0
  }, Infinity)
  if (stopRequested() === 1) polling.leave()
  else transport.close()
  reportClosed()
}

/** Milliseconds between two checks of the deadlines, if the engine runs on an event loop. */
const TICK = 50

async function runOnEvents(engine: Engine, transport: EventTransport): Promise<void> {
  await new Promise<void>((resolve) => {
    const pump = (): void => {
      Atomics.store(shared.control, control.parked, 0)
      while (takeCommands(engine) || engine.progress());
      Atomics.store(shared.control, control.parked, 1)
      if (stopRequested() !== 0) resolve()
      else if (takeCommands(engine)) setImmediate(pump)
    }
    transport.onReady = pump
    parentPort?.on('message', pump)
    const ticker = setInterval(() => {
      engine.checkDeadlines()
      pump()
      if (stopRequested() !== 0) clearInterval(ticker)
    }, TICK)
    pump()
  })
  if (stopRequested() === 1) {
    await leaveOnEvents(engine, transport)
    engine.failAll(destroyedError('An operation'))
  }
  transport.close()
  reportClosed()
}

/** Connects to the other ranks. Returns undefined if the main thread has cancelled the attempt. */
async function connect(prepared: PreparedTransport): Promise<OpenedTransport | undefined> {
  const givenUp = new AbortController()
  let take: (command: StartCommand) => void
  const options = await new Promise<ConnectOptions | undefined>((resolve) => {
    take = (command) => {
      if ('connect' in command) {
        resolve(command.connect)
      } else {
        givenUp.abort()
        resolve(undefined)
      }
    }
    parentPort?.on('message', take)
    tell({ listening: prepared.endpoint })
  })
  try {
    if (options !== undefined) return await prepared.connect(heap, options, givenUp.signal)
    prepared.close()
    return undefined
  } finally {
    parentPort?.off('message', take!)
  }
}

async function run(transport: OpenedTransport): Promise<void> {
  const { rank, worldSize, journal, tuning, gone, epochs } = input
  const engine = createEngine({
    heap,
    rank,
    worldSize,
    transport,
    observe: (observed) => diagnose(journal, observed),
    tuning,
    gone,
    epochs,
  })
  isReady = true
  const thread = placeOfThread()
  if ('sleep' in transport) {
    tell({ ready: { doorbell: transport.doorbell, thread, heaps: transport.heaps } })
    runBlocking(engine, transport)
  } else {
    tell({ ready: { doorbell: undefined, thread, heaps: undefined } })
    await runOnEvents(engine, transport)
  }
}

/** Returns a path that exists as long as this thread, for the main thread to check. */
function placeOfThread(): string | undefined {
  try {
    return `/proc/${readlinkSync('/proc/thread-self')}`
  } catch {
    return undefined
  }
}

async function main(): Promise<void> {
  bindAll()
  const opened = await connect(await prepareTransport(input.transport, input.listen, 2))
  try {
    if (opened !== undefined) await run(opened)
  } catch (error) {
    // Tell the peers at once that this rank is gone. Keep the doorbell open, because the main
    // thread may still use it.
    for (let peer = 0; peer < input.worldSize; peer++) opened?.closePeer(peer)
    throw error
  }
  // Bun has no method `close` on `parentPort`.
  ;(parentPort as Partial<MessagePort> | null)?.close?.()
  input.port.close()
}

process.once('uncaughtExceptionMonitor', (error) => {
  input.port.postMessage({ slot: ENGINE, error: serialize(error) })
})
process.once('exit', reportClosed)
main().catch((error: unknown) => {
  if (isReady) throw error
  tell({ failed: serialize(error) })
})
