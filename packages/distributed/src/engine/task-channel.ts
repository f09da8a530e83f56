import type { Channel } from '../algorithms/channel.ts'
import type { Engine } from './engine.ts'
import { spaces } from './frame.ts'
import { hasLeft } from './group.ts'
import type { Link } from './link.ts'
import type { Fingerprint } from '../operation.ts'
import type { Stream } from './stream.ts'
import { peerError } from './task-errors.ts'
import { outlastsLeaving, type Task } from './task.ts'
import type { Transfer } from './transfer.ts'

/** The channel of one task: its messages go through the links, in the stream of its operation. */
export function createChannel(engine: Engine, task: Task): Channel {
  const { group, operation, fingerprint, streams } = task
  const isMessage = operation.name === 'send' || operation.name === 'recv'
  const space = isMessage ? spaces.message : spaces.collective
  const sequence = isMessage ? operation.tag : operation.sequence

  const linkTo = (peer: number): Link => {
    const world = group.ranks[peer]
    const link = world === undefined ? undefined : engine.links[world]
    if (link === undefined) throw new RangeError(`no link to rank ${peer} of group ${group.name}`)
    return link
  }
  const streamTo = (peer: number): Stream => {
    const known = streams[peer]
    if (known !== undefined) return known
    const stream = linkTo(peer).stream(space, group.id, sequence)
    if (!isMessage) streams[peer] = stream
    return stream
  }
  const begin = (
    stream: Stream,
    index: number,
    at: number,
    bytes: number,
    count?: number,
  ): Transfer => {
    const transfer: Transfer = {
      task,
      stream,
      index,
      at,
      bytes,
      fingerprint: count === undefined ? fingerprint : { ...fingerprint, count },
      done: false,
      cancelled: false,
    }
    task.open.add(transfer)
    stream.link.transfers++
    return transfer
  }

  const receive = (from: number, at: number, bytes: number, count?: number): Transfer => {
    const stream = streamTo(from)
    const transfer = begin(stream, stream.nextReceive++, at, bytes, count)
    stream.link.receive(transfer)
    const isDeserted = hasLeft(group, stream.link) && !outlastsLeaving(task)
    if (!transfer.done && isDeserted) {
      throw peerError(task, stream.link, engine.rank)
    }
    return transfer
  }

  return {
    rank: group.rank,
    size: group.ranks.length,
    hosts: group.hosts,
    heap: engine.heap,
    kernels: engine.kernels,
    ladders: engine.ladders,
    send(to, at, bytes, count) {
      const stream = streamTo(to)
      const transfer = begin(stream, stream.nextSend++, at, bytes, count)
      if (hasLeft(group, stream.link)) throw peerError(task, stream.link, engine.rank)
      stream.link.send(transfer)
      return transfer
    },
    receive,
    receiveMatched(from, at, bytes) {
      return engine.turns.take(task, from, (source) => receive(source, at, bytes))
    },
    skip(from) {
      const stream = streamTo(from)
      const transfer = begin(stream, stream.nextReceive++, 0, 0)
      endTransfer(transfer)
      transfer.cancelled = true
      stream.link.receive(transfer)
    },
    scratch(bytes) {
      const at = engine.memory.allocateScratch(bytes)
      task.scratch.push(at)
      return at
    },
  }
}

/** Nothing waits for it any more. */
export function endTransfer(transfer: Transfer): void {
  const { task, stream } = transfer
  if (task.open.delete(transfer)) stream.link.transfers--
}

/** Closes the streams of a collective; `onLeftover` hears of messages that nobody took. */
export function closeStreams(
  { streams }: Task,
  onLeftover: (stream: Stream, message: Fingerprint) => void,
): void {
  for (const stream of streams) {
    const leftover = stream?.link.closeStream(stream)
    if (stream !== undefined && leftover !== undefined) onLeftover(stream, leftover)
  }
}
