import { once } from 'node:events'
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { isTsrError, tsrError, type SerializedTsrError } from '@tsrun/core'
import { heapOf } from '../../arena/heap.ts'
import { Engine } from '../../engine/engine.ts'
import type { Task } from '../../engine/task.ts'
import { prepareTransport } from '../../transports/open-transport.ts'
import type { BlockingTransport, EventTransport } from '../../transports/transport.ts'
import { DrivenEngine, LEAVE_TIME } from '../driven-engine.ts'
import { destroyedError } from '../host.ts'
import type {
  ConnectMessage,
  GroupFailureMessage,
  GroupMessage,
  StartMessage,
  WorkerInput,
} from './messages.ts'
import {
  commandAt,
  commandKinds,
  control,
  readOperation,
  sharedStateOf,
  slotStates,
} from './shared-state.ts'

/*
 * The engine's thread: connects, then runs commands of the main thread until it is told to stop.
 */

const input = workerData as WorkerInput
const shared = sharedStateOf(input.shared)
const tasks = new Map<number, Task>()
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

/** Takes the commands that have come. Returns whether there were any. */
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
    case commandKinds.addGroup: {
      const { message } = receiveMessageOnPort(input.port) as { message: GroupMessage }
      engine.addGroup(message.id, message.name, message.ranks)
      return
    }
    case commandKinds.failGroup: {
      const { message } = receiveMessageOnPort(input.port) as { message: GroupFailureMessage }
      engine.failGroup(message.id, message.reason)
      return
    }
    case commandKinds.removeGroup:
      engine.removeGroup(commands[at + 2]!)
      return
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
  const driven = new DrivenEngine(engine, transport, (milliseconds) => {
    Atomics.store(shared.control, control.parked, 1)
    const hasCommand =
      Atomics.load(shared.control, control.written) !== shared.control[control.read]
    if (!hasCommand && stopRequested() === 0) transport.sleep(milliseconds)
    Atomics.store(shared.control, control.parked, 0)
  })
  driven.runUntil(() => {
    takeCommands(engine)
    return stopRequested() !== 0
  }, Infinity)
  if (stopRequested() === 1) driven.leave()
  else transport.close()
  reportClosed()
}

/** Milliseconds between two looks at deadlines on an event loop. */
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

/** See `DrivenEngine.leave`. */
async function leaveOnEvents(engine: Engine, transport: EventTransport): Promise<void> {
  engine.sayGoodbye()
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, LEAVE_TIME)
    transport.onReady = () => {
      while (engine.progress());
      if (engine.hasOutgoing || engine.hasPeers) return
      clearTimeout(timer)
      resolve()
    }
    transport.onReady()
  })
}

async function main(): Promise<void> {
  const prepared = await prepareTransport(input.transport, input.listen)
  const connecting = once(parentPort!, 'message') as Promise<[ConnectMessage]>
  tell({ listening: prepared.endpoint })
  const [{ connect }] = await connecting
  const heap = heapOf(input.memory)
  const opened = await prepared.connect(heap, connect)
  const { rank, worldSize, journal, ladders, gone } = input
  const engine = new Engine({
    heap,
    rank,
    worldSize,
    transport: opened.transport,
    journal,
    ladders,
    gone,
  })
  isReady = true
  if (opened.kind === 'blocking') {
    tell({ ready: { doorbell: opened.transport.doorbell } })
    runBlocking(engine, opened.transport)
  } else {
    tell({ ready: { doorbell: undefined } })
    await runOnEvents(engine, opened.transport)
  }
  parentPort?.close()
  input.port.close()
}

main().catch((error: unknown) => {
  reportClosed()
  if (isReady) throw error
  tell({ failed: serialize(error) })
})
