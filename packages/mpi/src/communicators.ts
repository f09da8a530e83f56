import { until, type RunningOperation, type Waited } from '@tsrun/distributed/transport'
import { low, type Mpi } from './libmpi.ts'

/** An event that an operation awaits before it creates a communicator: its turn or a go-ahead. */
interface Signal {
  readonly running: RunningOperation
  done: boolean
}

/** Largest tag that every libmpi supports. */
const LARGEST_TAG = 32767

export type Communicators = ReturnType<typeof openCommunicators>

/** Duplicates the communicator of the world. All ranks of the world must call it together. */
export function duplicateWorld({ abi, call, address, handle }: Mpi): number {
  call('Comm_dup', abi.world, address(low.handle))
  const communicator = handle(low.handle)
  call('Comm_set_errhandler', communicator, abi.errorsReturn)
  return communicator
}

/** Prepares communicators for groups. All ranks of the world must call it together. */
export function openCommunicators(mpi: Mpi) {
  const { abi, call, address, handle } = mpi
  /** The communicator for the go-ahead messages of `make`. */
  const goAheads = duplicateWorld(mpi)
  const queue: Signal[] = []
  let expected: (Signal & { readonly at: number }) | undefined

  /** Starts to send or receive an empty message. Returns the offset of the request. */
  const exchange = (name: 'Isend' | 'Irecv', running: RunningOperation, peer: number) => {
    const { id, ranks } = running.group
    const at = running.scratch(8)
    const tag = id % LARGEST_TAG
    call(name, address(at), 0, abi.handles.byte, ranks[peer]!, tag, goAheads, address(at))
    return at
  }

  const create = (running: RunningOperation) => {
    const { id, ranks } = running.group
    const list = running.scratch(4 * ranks.length)
    mpi.integers.set(ranks, list / 4)
    const made = address(low.handle)
    call('Comm_group', abi.world, made)
    const all = handle(low.handle)
    call('Group_incl', all, ranks.length, address(list), made)
    const members = handle(low.handle)
    call('Comm_create_group', abi.world, members, id % 32768, made)
    const communicator = handle(low.handle)
    call('Comm_set_errhandler', communicator, abi.errorsReturn)
    for (const each of [members, all]) {
      mpi.putHandle(low.handle, each)
      call('Group_free', made)
    }
    return communicator
  }

  return {
    /**
     * Creates the communicator of an operation's group. The call of libmpi blocks until all members
     * have called it. Members must therefore not wait for each other in the calls of different groups.
     * The members take turns in the order of their world ranks, so there can be no cycle. The last
     * member sends the go-ahead by libmpi, because the engine moves no frames during the call.
     */
    *make(running: RunningOperation): Generator<Waited, number, void> {
      const { ranks, rank } = running.group
      const order = [...ranks.keys()].sort((a, b) => ranks[a]! - ranks[b]!)
      const place = order.indexOf(rank)
      const [previous, next, last] = [order[place - 1], order[place + 1], order.at(-1)!]
      if (previous !== undefined) yield* until(running.receive(previous, 0, 0))
      const turn = { running, done: false }
      queue.push(turn)
      yield* until(turn)
      let sent: number[] = []
      if (next === undefined) {
        sent = order.slice(0, -1).map((peer) => exchange('Isend', running, peer))
      } else {
        yield* until(running.send(next, 0, 0))
        expected = { running, done: false, at: exchange('Irecv', running, last) }
        yield* until(expected)
      }
      const communicator = create(running)
      // All members have received their go-ahead, so the pending sends complete soon.
      for (const at of sent) while (!mpi.isDone(at));
      queue.splice(queue.indexOf(turn), 1)
      return communicator
    },
    progress() {
      const goAhead = expected
      if (goAhead !== undefined && mpi.isDone(goAhead.at)) {
        expected = undefined
        goAhead.done = true
        goAhead.running.resume(goAhead)
      }
      while (queue[0] !== undefined && queue[0].running.state !== 'running') queue.shift()
      const [first] = queue
      const isNew = first !== undefined && !first.done
      if (isNew) {
        first.done = true
        first.running.resume(first)
      }
      return isNew || goAhead?.done === true
    },
    free(communicator: number) {
      mpi.putHandle(low.handle, communicator)
      call('Comm_free', address(low.handle))
    },
  }
}
