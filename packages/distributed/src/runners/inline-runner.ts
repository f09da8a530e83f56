import type { Arena } from '../arena/arena.ts'
import type { Journal } from '../diagnosis/journal.ts'
import type { Engine } from '../engine/engine.ts'
import type { Operation } from '../operation.ts'
import type { BlockingTransport } from '../transports/transport.ts'
import { destroyedError, type Runner } from './runner.ts'
import { DrivenEngine } from './driven-engine.ts'
import { TaskTicket } from './task-ticket.ts'
import type { Ticket } from '../ticket.ts'

/** Milliseconds that asynchronous waiting holds the thread before the event loop gets its turn. */
const HOLD = 5
/** Milliseconds between two looks of nobody's, where others may wait for them. */
const GLANCE = 2

/**
 * Runs the engine on the caller's thread, inside the waits: the lowest latency, no overlap. While
 * nobody waits, nothing moves but what was handed to the sockets.
 */
export class InlineRunner implements Runner {
  readonly kind = 'inline'
  readonly transport: string
  readonly arena: Arena
  readonly journal: Journal
  readonly #engine: Engine
  readonly #driven: DrivenEngine
  readonly #attended = new Set<Ticket>()
  readonly #glances: NodeJS.Timeout | undefined
  #pumping = false
  #closed = false
  /** A script that just ends leaves in order, one that fails does not. */
  readonly #onExit = (code: number): void => {
    if (code === 0) this.#driven.leave()
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
    this.#driven = new DrivenEngine(engine, transport)
    process.on('exit', this.#onExit)
    if (transport?.movesWhenLookedAt === true) this.#glances = this.#glance()
  }

  addGroup(id: number, name: string, ranks: readonly number[]): void {
    if (this.#closed) throw destroyedError('newGroup')
    this.#engine.addGroup(id, name, ranks)
  }

  removeGroup(id: number): void {
    this.#engine.removeGroup(id)
  }

  failGroup(id: number, reason: string): void {
    this.#engine.failGroup(id, reason)
  }

  /** Looks at the connections first: nobody else does while nobody waits. */
  get gone(): Int32Array {
    if (!this.#closed) this.#driven.poll()
    return this.#engine.gone
  }

  submit(operation: Operation): Ticket {
    if (this.#closed) throw destroyedError(operation.name)
    return new TaskTicket(this.#engine, operation, {
      poll: () => {
        this.#driven.poll()
      },
      block: (ticket) => {
        this.#driven.runUntil(() => ticket.isSettled, Infinity)
      },
      attend: (ticket) => {
        this.#attended.add(ticket)
        this.#pump()
      },
    })
  }

  async close(): Promise<void> {
    process.off('exit', this.#onExit)
    clearInterval(this.#glances)
    if (this.#closed) return
    this.#closed = true
    this.#driven.leave()
    await Promise.resolve()
  }

  /** While this rank waits for something else, as the store, others may need it to go on. */
  #glance(): NodeJS.Timeout {
    const timer = setInterval(() => {
      if (!this.#pumping) this.#driven.poll()
    }, GLANCE)
    return timer.unref()
  }

  /** Alternates between the engine and the event loop while somebody waits. */
  #pump(): void {
    if (this.#pumping) return
    this.#pumping = true
    const turn = (): void => {
      this.#driven.runUntil(() => this.#forgetSettled(), HOLD)
      if (this.#attended.size > 0) setImmediate(turn)
      else this.#pumping = false
    }
    setImmediate(turn)
  }

  /** Whether any attended ticket settled: its callbacks should run now. */
  #forgetSettled(): boolean {
    let any = false
    for (const ticket of this.#attended) {
      if (!ticket.isSettled) continue
      this.#attended.delete(ticket)
      any = true
    }
    return any || this.#attended.size === 0
  }
}
