import type { Arena } from '../arena/arena.ts'
import type { Journal } from '../diagnosis/journal.ts'
import type { Engine } from '../engine/engine.ts'
import type { Operation } from '../operation.ts'
import type { BlockingTransport } from '../transports/transport.ts'
import { destroyedError, type Runner } from './runner.ts'
import { PollingEngine } from './polling-engine.ts'
import { CallingThread } from './calling-thread/calling-thread.ts'
import { EngineDriver } from './engine-driver.ts'
import type { Ticket, TicketDriver } from '../ticket.ts'

/**
 * Largest number of milliseconds to poll between two turns of the event loop, while an operation is
 * awaited.
 */
const HOLD = 5
/**
 * Milliseconds between two polls of the engine while no operation is awaited. Other ranks may wait
 * for data from this rank.
 */
const POLL_PERIOD = 2

/**
 * Runs the engine on the calling thread while the caller waits. The latency is the lowest, but
 * communication does not overlap with computation. While no operation is awaited, only data that
 * sockets have already accepted moves.
 */
export class InlineRunner implements Runner {
  readonly kind = 'inline'
  readonly transport: string
  readonly arena: Arena
  readonly journal: Journal
  readonly #engine: Engine
  readonly #polling: PollingEngine
  readonly #awaited = new Set<Ticket>()
  readonly #polls: NodeJS.Timeout | undefined
  readonly #driver: EngineDriver
  readonly #callingThread: CallingThread | undefined
  #pumping = false
  #closed = false
  /** Shuts down gracefully only if the script ends without an error. */
  readonly #onExit = (code: number): void => {
    if (code === 0) this.#polling.leave()
    else this.journal.dumpFailure(`the process exits with code ${code}`)
  }

  constructor(
    engine: Engine,
    arena: Arena,
    journal: Journal,
    transport: BlockingTransport | undefined,
  ) {
    this.#engine = engine
    this.arena = arena
    this.journal = journal
    this.transport = transport?.name ?? 'none'
    this.#polling = new PollingEngine(engine, transport)
    this.#driver = this.#createDriver()
    this.#callingThread = this.#createCallingThread(transport)
    process.on('exit', this.#onExit)
    if (transport?.movesWhenLookedAt === true) this.#polls = this.#pollNowAndThen()
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    if (this.#closed) throw destroyedError('newGroup')
    this.#engine.addGroup(id, name, ranks)
    this.#callingThread?.addGroup(id, name, ranks)
  }

  removeGroup(id: number): void {
    this.#callingThread?.removeGroup(id)
    this.#engine.removeGroup(id)
  }

  failGroup(id: number, reason: string): void {
    this.#engine.failGroup(id, reason)
  }

  /**
   * Polls the engine before reading, because nothing else polls it while no operation is awaited.
   */
  get gone(): Int32Array {
    if (!this.#closed) this.#polling.poll()
    return this.#engine.gone
  }

  driverOf(operation: Operation, isAwaited: boolean): TicketDriver {
    if (this.#closed) throw destroyedError(operation.name)
    const here = this.#callingThread
    return here?.runs(operation, isAwaited) === true ? here : this.#driver
  }

  prefersCaller({ group }: Operation): boolean {
    return this.#callingThread?.reaches(group) === true
  }

  #createDriver(): EngineDriver {
    return new EngineDriver(this.#engine, {
      prepareFor: (next) => {
        if (this.#closed) throw destroyedError(next.name)
        this.#callingThread?.flushBefore(next)
      },
      poll: () => {
        this.#polling.poll()
      },
      block: (ticket) => {
        this.#polling.runUntil(() => ticket.isSettled, Infinity)
      },
      spinBriefly: (ticket) => {
        this.#polling.runUntil(() => ticket.isSettled, HOLD)
      },
      attend: (ticket) => {
        this.#awaited.add(ticket)
        this.#pump()
      },
    })
  }

  async close(): Promise<void> {
    process.off('exit', this.#onExit)
    clearInterval(this.#polls)
    if (this.#closed) return
    this.#closed = true
    this.#polling.leave()
    await Promise.resolve()
  }

  #createCallingThread(transport: BlockingTransport | undefined): CallingThread | undefined {
    const { arena, journal } = this
    const { rank, kernels, tuning, epochs } = this.#engine
    const { slots, hosts, place } = transport ?? {}
    // Call sites are sent to all ranks as messages under `detail`. Only the engine can send
    // messages.
    if (slots === undefined || hosts === undefined || epochs === undefined) return undefined
    if (journal.owner.settings.detail) return undefined
    return new CallingThread({
      ...{ slots, kernels, rank, hosts, tuning, epochs, arena, journal, place },
      mail: hosts.map((_, peer) => transport?.mail?.(peer)),
      // Leave large operations to the engine, which is on this thread, too.
      get: undefined,
      isIdle: () => !this.#engine.hasRunning && !this.#engine.hasOutgoing,
      engine: this.#driver,
    })
  }

  /**
   * Polls the engine at intervals. Other ranks may need data from this rank while it waits for
   * something else, such as the store.
   */
  #pollNowAndThen(): NodeJS.Timeout {
    const timer = setInterval(() => {
      if (!this.#pumping) this.#polling.poll()
    }, POLL_PERIOD)
    return timer.unref()
  }

  /** Alternates between the engine and the event loop while operations are awaited. */
  #pump(): void {
    if (this.#pumping) return
    this.#pumping = true
    const turn = (): void => {
      this.#polling.runUntil(() => this.#removeSettled(), HOLD)
      if (this.#awaited.size > 0) setImmediate(turn)
      else this.#pumping = false
    }
    setImmediate(turn)
  }

  /**
   * Removes settled tickets. Returns whether to return to the event loop, because a ticket has
   * settled or no ticket is awaited.
   */
  #removeSettled(): boolean {
    let any = false
    for (const ticket of this.#awaited) {
      // The ticket may have a new run on another driver.
      if (ticket.driver === this.#driver && !ticket.isSettled) continue
      this.#awaited.delete(ticket)
      any = true
    }
    return any || this.#awaited.size === 0
  }
}
