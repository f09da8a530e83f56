import { until, type Channel, type Waited } from '../algorithms/channel.ts'
import type { RunningOperation } from '../transports/transport-collectives.ts'
import { low } from './layout.ts'
import type { LibMpi } from './libmpi.ts'
import type { NativeMemory } from './native-memory.ts'

/** A rank's turn to make a communicator, or the word to do so. */
interface Signal {
  readonly task: RunningOperation
  done: boolean
}

/** Largest tag that every libmpi takes. */
const LARGEST_TAG = 32767

/** The communicators of libmpi. Those that other groups than the world need are made on the way. */
export class Communicators {
  readonly #mpi: LibMpi
  readonly #native: NativeMemory
  /** Carries the words of `make`. */
  readonly #words: number
  readonly #turns: Signal[] = []
  #expected: (Signal & { readonly at: number }) | undefined

  /** All ranks of the world call it together. */
  constructor(mpi: LibMpi, native: NativeMemory) {
    this.#mpi = mpi
    this.#native = native
    this.#words = this.duplicateWorld()
  }

  /** All ranks of the world call it together. */
  duplicateWorld(): number {
    const { abi, call } = this.#mpi
    const made = this.#native.address(low.handle)
    call('Comm_dup', abi.world, made)
    const communicator = this.#native.handle(low.handle)
    call('Comm_set_errhandler', communicator, abi.errorsReturn)
    return communicator
  }

  /**
   * Makes the communicator of the task's group. The call of libmpi blocks until all members are
   * there, so no rank may enter it while one of them could enter another: the members reserve
   * themselves in the order of their ranks in the world, which cannot go round in a circle; the last
   * one gives the word. It travels without the engine, whose frames stand still in that call.
   *
   * @returns its handle
   */
  *make(channel: Channel, task: RunningOperation): Generator<Waited, number, void> {
    const { ranks } = task.group
    const order = [...ranks.keys()].sort((a, b) => ranks[a]! - ranks[b]!)
    const place = order.indexOf(channel.rank)
    const [previous, next, last] = [order[place - 1], order[place + 1], order.at(-1)!]
    if (previous !== undefined) yield* until(channel.receive(previous, 0, 0))
    const turn = { task, done: false }
    this.#turns.push(turn)
    yield* until(turn)
    let words: number[] = []
    if (next === undefined) {
      words = order.slice(0, -1).map((peer) => this.#exchange('Isend', channel, task, peer))
    } else {
      yield* until(channel.send(next, 0, 0))
      const word = { task, done: false, at: this.#exchange('Irecv', channel, task, last) }
      this.#expected = word
      yield* until(word)
    }
    const communicator = this.#create(channel, task)
    // all members have been there, so these are on their last way
    for (const at of words) while (!this.#isDone(at));
    this.#turns.splice(this.#turns.indexOf(turn), 1)
    return communicator
  }

  /** Gives the turn to the next, when none has it, and looks for the word. */
  progress(): boolean {
    const word = this.#expected
    if (word !== undefined && this.#isDone(word.at)) {
      this.#expected = undefined
      word.done = true
      word.task.resume(word)
    }
    while (this.#turns[0] !== undefined && this.#turns[0].task.state !== 'running') {
      this.#turns.shift()
    }
    const [first] = this.#turns
    const isNew = first !== undefined && !first.done
    if (isNew) {
      first.done = true
      first.task.resume(first)
    }
    return isNew || word?.done === true
  }

  /** A message of no bytes; returns the offset of its request. */
  #exchange(
    name: 'Isend' | 'Irecv',
    channel: Channel,
    { group }: RunningOperation,
    peer: number,
  ): number {
    const { abi, call } = this.#mpi
    const at = channel.scratch(8)
    const address = this.#native.address(at)
    const tag = group.id % LARGEST_TAG
    call(name, address, 0, abi.handles.byte, group.ranks[peer]!, tag, this.#words, address)
    return at
  }

  #isDone(at: number): boolean {
    const { abi, call } = this.#mpi
    call('Test', this.#native.address(at), this.#native.address(low.flag), abi.statusIgnore)
    return this.#native.integer(low.flag) !== 0
  }

  free(communicator: number): void {
    this.#native.putHandle(low.handle, communicator)
    this.#mpi.call('Comm_free', this.#native.address(low.handle))
  }

  #create(channel: Channel, { group }: RunningOperation): number {
    const { abi, call } = this.#mpi
    const { id, ranks } = group
    const list = channel.scratch(4 * ranks.length)
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
