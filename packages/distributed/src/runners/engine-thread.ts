import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads'
import {
  Deadline,
  messageOf,
  reviveTsrError,
  tsrError,
  waitOrAbort,
  type TsrError,
} from '@tsrun/core'
import { ringBell } from '@tsrun/native'
import { packageFolder } from '../package-folder.ts'
import type { Endpoint } from '../transports/dialer.ts'
import type { ConnectOptions } from './open-transport.ts'
import {
  ENGINE,
  type FailureMessage,
  type GroupMessage,
  type ReadyMessage,
  type StartCommand,
  type StartMessage,
  type WorkerInput,
} from './worker-messages.ts'
import { control } from './worker-memory.ts'

/** Longest graceful shutdown in milliseconds. */
export const LEAVE_TIME = 3000

/**
 * Starts, wakes and stops the thread of an engine, and detects its death.
 *
 * @param onDeath - called if the thread ends although `stop` was not called
 */
export function createThread(
  input: Omit<WorkerInput, 'port'>,
  words: Int32Array,
  onDeath: () => void,
) {
  const { port1: port, port2 } = new MessageChannel()
  const workerData: WorkerInput = { ...input, port: port2 }
  const worker = new Worker(workerEntry(), { workerData, transferList: [port2], execArgv: [] })
  const failures = new Map<number, TsrError>()
  let ready: ReadyMessage | undefined
  let hasExited = false
  let death: TsrError | undefined
  worker.on('error', (error: unknown) => {
    death ??= failureOf(ENGINE) ?? deathOf(messageOf(error))
  })
  const exited = new Promise<void>((resolve) => {
    worker.once('exit', () => {
      hasExited = true
      resolve()
      if (Atomics.load(words, control.stop) === 0) onDeath()
    })
  })

  const wake = (): void => {
    if (ready?.doorbell === undefined) worker.postMessage(0)
    else ringBell(ready.doorbell)
  }

  /** Waits for the end of the thread, after `stop`. Terminates it after `milliseconds`. */
  const end = async (milliseconds: number): Promise<void> => {
    worker.ref()
    const timer = setTimeout(() => void worker.terminate(), milliseconds)
    await exited
    clearTimeout(timer)
    port.close()
  }

  /** Returns the error of the operation in a slot. A second call returns undefined. */
  const failureOf = (slot: number): TsrError | undefined => {
    for (;;) {
      const known = failures.get(slot)
      if (known !== undefined) {
        failures.delete(slot)
        return known
      }
      const received = receiveMessageOnPort(port) as { message: FailureMessage } | undefined
      if (received === undefined) return undefined
      failures.set(received.message.slot, reviveTsrError(received.message.error))
    }
  }

  const answer = async (): Promise<StartMessage> => {
    const [message] = (await once(worker, 'message')) as [StartMessage]
    if ('failed' in message) throw reviveTsrError(message.failed)
    return message
  }

  const isGone = (): boolean => {
    if (hasExited || Atomics.load(words, control.closed) === 1) return true
    return ready?.thread !== undefined && !existsSync(ready.thread)
  }

  const tell = (command: StartCommand): void => {
    worker.postMessage(command)
  }

  /** Asks the worker to end. `terminate` would leak the worker's sockets, which libc opened. */
  const giveUp = async (): Promise<void> => {
    Atomics.store(words, control.stop, 2)
    tell({ cancel: true })
    await end(LEAVE_TIME)
  }

  return {
    /**
     * Starts the thread and connects its engine to the other ranks.
     *
     * @param exchange - publishes the engine's endpoint and resolves to the endpoints of all ranks
     * @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_CONNECT, ERR_TSR_ABORTED
     */
    async start(
      exchange: (endpoint: Endpoint) => Promise<ConnectOptions>,
      signal: AbortSignal | undefined,
    ): Promise<ReadyMessage> {
      const next = async (): Promise<StartMessage> =>
        await waitOrAbort(answer(), 'joining the job', Deadline.never, signal)
      try {
        const first = await next()
        if (!('listening' in first)) throw unexpected(first)
        const connect = await exchange(first.listening)
        tell({ connect })
        const second = await next()
        if (!('ready' in second)) throw unexpected(second)
        ready = second.ready
        worker.unref()
        return ready
      } catch (error) {
        await giveUp()
        throw error
      }
    },
    hold(isHeld: boolean): void {
      if (isHeld) worker.ref()
      else worker.unref()
    },
    wake,
    /** Sends data that does not fit into a command. Called before that command is written. */
    post(message: GroupMessage): void {
      port.postMessage(message)
    },
    /** Stops the thread: 1 gracefully, 2 by closing the connections at once. */
    stop(how: 1 | 2): void {
      Atomics.store(words, control.stop, how)
      wake()
    },
    end,
    /** Returns why the thread has ended; undefined while it runs. Takes a system call. */
    death: () => {
      if (death === undefined && isGone()) {
        death = failureOf(ENGINE) ?? deathOf('it was terminated')
      }
      return death
    },
    isGone,
    failureOf,
  }
}

function deathOf(reason: string): TsrError {
  return tsrError('ERR_TSR_INTERNAL', { what: `the engine's worker has ended: ${reason}` })
}

function unexpected(message: StartMessage): Error {
  return tsrError('ERR_TSR_INTERNAL', { what: `unexpected ${Object.keys(message).join()}` })
}

/** Returns the compiled worker: some TypeScript loaders do not work in threads. */
function workerEntry(): URL {
  return new URL('dist/worker-main.js', packageFolder)
}
