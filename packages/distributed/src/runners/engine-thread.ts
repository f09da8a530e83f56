import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads'
import {
  Deadline,
  messageOf,
  reviveTsrError,
  tsrError,
  waitOrAbort,
  type TsrError,
} from '@tsrun/core'
import { signalEventfd } from '@tsrun/native'
import { packageFolder } from '../package-folder.ts'
import type { Endpoint } from '../transports/dialer.ts'
import type { ConnectOptions } from './open-transport.ts'
import {
  ENGINE,
  type FailureMessage,
  type GroupFailureMessage,
  type GroupMessage,
  type ReadyMessage,
  type StartCommand,
  type StartMessage,
  type WorkerInput,
} from './worker-messages.ts'
import { control } from './worker-memory.ts'

/** Longest graceful shutdown in milliseconds. */
export const LEAVE_TIME = 3000

/** Starts, wakes and stops the thread of an engine, and detects its death. */
export class EngineThread {
  /** The eventfd that wakes the thread; undefined if JavaScript messages wake it. */
  doorbell: number | undefined
  readonly #worker: Worker
  readonly #port: MessagePort
  readonly #control: Int32Array
  readonly #exited: Promise<void>
  readonly #failures = new Map<number, TsrError>()
  /**
   * The mapped heaps of the ranks that share memory with this one, as the thread has reported them.
   */
  heaps: ReadyMessage['heaps']
  /** A path in /proc that exists as long as the thread does; undefined if there is no /proc. */
  #place: string | undefined
  #hasExited = false
  #death: TsrError | undefined

  /** @param onDeath - called if the thread ends although `stop` was not called */
  constructor(input: Omit<WorkerInput, 'port'>, words: Int32Array, onDeath: () => void) {
    const { port1, port2 } = new MessageChannel()
    this.#port = port1
    this.#control = words
    const workerData: WorkerInput = { ...input, port: port2 }
    this.#worker = new Worker(workerEntry(), { workerData, transferList: [port2], execArgv: [] })
    this.#worker.on('error', (error: unknown) => {
      const reason = messageOf(error)
      this.#death ??= this.failureOf(ENGINE) ?? deathOf(reason)
    })
    this.#exited = new Promise((resolve) => {
      this.#worker.once('exit', () => {
        this.#hasExited = true
        resolve()
        if (Atomics.load(this.#control, control.stop) === 0) onDeath()
      })
    })
  }

  /**
   * Starts the thread and connects its engine to the other ranks.
   *
   * @param exchange - publishes the engine's endpoint and resolves to the endpoints of all ranks
   * @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_CONNECT, ERR_TSR_ABORTED
   */
  async start(
    exchange: (endpoint: Endpoint) => Promise<ConnectOptions>,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const answer = async (): Promise<StartMessage> =>
      await waitOrAbort(this.#answer(), 'joining the job', Deadline.never, signal)
    try {
      const first = await answer()
      if (!('listening' in first)) throw unexpected(first)
      const connect = await exchange(first.listening)
      this.#tell({ connect })
      const second = await answer()
      if (!('ready' in second)) throw unexpected(second)
      this.doorbell = second.ready.doorbell
      this.#place = second.ready.thread
      this.heaps = second.ready.heaps
    } catch (error) {
      await this.#giveUp()
      throw error
    }
    this.#worker.unref()
  }

  hold(isHeld: boolean): void {
    if (isHeld) this.#worker.ref()
    else this.#worker.unref()
  }

  wake(): void {
    if (this.doorbell === undefined) this.#worker.postMessage(0)
    else signalEventfd(this.doorbell)
  }

  /** Sends data that does not fit into a command. Called before that command is written. */
  post(message: GroupMessage | GroupFailureMessage): void {
    this.#port.postMessage(message)
  }

  /**
   * Stops the thread.
   * @param how - 1: shut down gracefully; 2: close the connections at once
   */
  stop(how: 1 | 2): void {
    Atomics.store(this.#control, control.stop, how)
    this.wake()
  }

  /**
   * Resolves when the thread has ended, after `stop`. Terminates the thread after `milliseconds`.
   */
  async end(milliseconds: number): Promise<void> {
    this.#worker.ref()
    const timer = setTimeout(() => void this.#worker.terminate(), milliseconds)
    await this.#exited
    clearTimeout(timer)
    this.#port.close()
  }

  /**
   * Why the thread has ended; undefined while it runs. Reading this property takes a system call.
   */
  get death(): TsrError | undefined {
    if (this.#death === undefined && this.isGone) {
      this.#death = this.failureOf(ENGINE) ?? deathOf('it was terminated')
    }
    return this.#death
  }

  get isGone(): boolean {
    if (this.#hasExited || Atomics.load(this.#control, control.closed) === 1) return true
    return this.#place !== undefined && !existsSync(this.#place)
  }

  /** Returns the error of the operation in a slot. A second call returns undefined. */
  failureOf(slot: number): TsrError | undefined {
    for (;;) {
      const known = this.#failures.get(slot)
      if (known !== undefined) {
        this.#failures.delete(slot)
        return known
      }
      const received = receiveMessageOnPort(this.#port) as { message: FailureMessage } | undefined
      if (received === undefined) return undefined
      this.#failures.set(received.message.slot, reviveTsrError(received.message.error))
    }
  }

  async #answer(): Promise<StartMessage> {
    const [message] = (await once(this.#worker, 'message')) as [StartMessage]
    if ('failed' in message) throw reviveTsrError(message.failed)
    return message
  }

  #tell(command: StartCommand): void {
    this.#worker.postMessage(command)
  }

  /** Asks the worker to end. `terminate` would leak the worker's sockets, which libc opened. */
  async #giveUp(): Promise<void> {
    Atomics.store(this.#control, control.stop, 2)
    this.#tell({ cancel: true })
    await this.end(LEAVE_TIME)
  }
}

function deathOf(reason: string): TsrError {
  return tsrError('ERR_TSR_INTERNAL', { what: `the engine's worker has ended: ${reason}` })
}

function unexpected(message: StartMessage): Error {
  return tsrError('ERR_TSR_INTERNAL', { what: `unexpected ${Object.keys(message).join()}` })
}

/**
 * Returns the URL of the compiled worker. The source file is not used, because some TypeScript
 * loaders do not work in worker threads.
 */
function workerEntry(): URL {
  return new URL('dist/worker-main.js', packageFolder)
}
