import { until, type RunningOperation, type Waited } from '@tsrun/distributed/transport'
import type { LibMpi } from './libmpi.ts'
import { low, type NativeMemory } from './memory.ts'

/**
 * The event that an operation waits for while it creates a communicator: its turn, or the go-ahead.
 */
interface Signal {
  readonly running: RunningOperation
  done: boolean
}

/** Largest tag that every libmpi supports. */
const LARGEST_TAG = 32767

/**
 * The communicators of libmpi. A communicator of a group other than the world is created on first
 * use.
 */
export class Communicators {
  readonly #mpi: LibMpi
  readonly #native: NativeMemory
  /** The communicator for the go-ahead messages of `make`. */
  readonly #goAheads: number
  readonly #queue: Signal[] = []
  #expected: (Signal & { readonly at: number }) | undefined

  /** All ranks of the world must call the constructor together. */
  constructor(mpi: LibMpi, native: NativeMemory) {
    this.#mpi = mpi
    this.#native = native
    this.#goAheads = this.duplicateWorld()
  }

  /** Duplicates the communicator of the world. All ranks of the world must call it together. */
  duplicateWorld(): number {
    const { abi, call } = this.#mpi
    const made = this.#native.address(low.handle)
    call('Comm_dup', abi.world, made)
    const communicator = this.#native.handle(low.handle)
    call('Comm_set_errhandler', communicator, abi.errorsReturn)
    return communicator
  }

  /**
   * Creates the communicator of an operation's group. The call of libmpi blocks until all members
   * have called it. No rank may therefore enter the call while another member could enter one for
   * another group. The members commit in the order of their world ranks, so there can be no cycle.
   * The last member sends the go-ahead. It bypasses the engine, because the engine moves no frames
   * during the call.
   *
   * @returns the handle of the communicator
   */
  *make(running: RunningOperation): Generator<Waited, number, void> {
    const { ranks, rank } = running.group
    const order = [...ranks.keys()].sort((a, b) => ranks[a]! - ranks[b]!)
    const place = order.indexOf(rank)
    const [previous, next, last] = [order[place - 1], order[place + 1], order.at(-1)!]
    if (previous !== undefined) yield* until(running.receive(previous, 0, 0))
    const turn = { running, done: false }
    this.#queue.push(turn)
    yield* until(turn)
    let sent: number[] = []
    if (next === undefined) {
      sent = order.slice(0, -1).map((peer) => this.#exchange('Isend', running, peer))
    } else {
      yield* until(running.send(next, 0, 0))
      const goAhead = { running, done: false, at: this.#exchange('Irecv', running, last) }
      this.#expected = goAhead
      yield* until(goAhead)
    }
    const communicator = this.#create(running)
    // All members have received their go-ahead, so the pending sends complete soon.
    for (const at of sent) while (!this.#isDone(at));
    this.#queue.splice(this.#queue.indexOf(turn), 1)
    return communicator
  }

  progress(): boolean {
    const goAhead = this.#expected
    if (goAhead !== undefined && this.#isDone(goAhead.at)) {
      this.#expected = undefined
      goAhead.done = true
      goAhead.running.resume(goAhead)
    }
    while (this.#queue[0] !== undefined && this.#queue[0].running.state !== 'running') {
      this.#queue.shift()
    }
    const [first] = this.#queue
    const isNew = first !== undefined && !first.done
    if (isNew) {
      first.done = true
      first.running.resume(first)
    }
    return isNew || goAhead?.done === true
  }

  free(communicator: number): void {
    this.#native.putHandle(low.handle, communicator)
    this.#mpi.call('Comm_free', this.#native.address(low.handle))
  }

  /** Starts to send or receive an empty message. Returns the offset of the request. */
  #exchange(name: 'Isend' | 'Irecv', running: RunningOperation, peer: number): number {
    const { abi, call } = this.#mpi
    const { id, ranks } = running.group
    const at = running.scratch(8)
    const address = this.#native.address(at)
    const tag = id % LARGEST_TAG
    call(name, address, 0, abi.handles.byte, ranks[peer]!, tag, this.#goAheads, address)
    return at
  }

  #isDone(at: number): boolean {
    const { abi, call } = this.#mpi
    call('Test', this.#native.address(at), this.#native.address(low.flag), abi.statusIgnore)
    return this.#native.integer(low.flag) !== 0
  }

  #create(running: RunningOperation): number {
    const { abi, call } = this.#mpi
    const { id, ranks } = running.group
    const list = running.scratch(4 * ranks.length)
    this.#native.integers.set(ranks, list / 4)
    const made = this.#native.address(low.handle)
    call('Comm_group', abi.world, made)
    const all = this.#native.handle(low.handle)
    call('Group_incl', all, ranks.length, this.#native.address(list), made)
    const members = this.#native.handle(low.handle)
    call('Comm_create_group', abi.world, members, id % 32768, made)
    const communicator = this.#native.handle(low.handle)
    call('Comm_set_errhandler', communicator, abi.errorsReturn)
    for (const handle of [members, all]) {
      this.#native.putHandle(low.handle, handle)
      call('Group_free', made)
    }
    return communicator
  }
}
