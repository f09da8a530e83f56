import { bytesOf, type OperationName } from '../operation.ts'
import {
  arithmeticOf,
  untilAll,
  type Algorithm,
  type Algorithms,
  type Channel,
  type Message,
  type Steps,
} from './channel.ts'
import { reduceToOwners } from './direct.ts'
import { bufferOf, cutIntoChunks, type Piece } from './pieces.ts'
import type { TuningTable } from './tuning-table.ts'

/*
 * All-reduce of groups that span several hosts, with several ranks on at least one host. Ranks of a
 * host copy from each other's memory, and as few bytes as possible go between hosts (Sanders &
 * Träff, 2002; NCCL's trees and MPI libraries' two-level collectives are similar).
 *
 * With m ranks on the smallest host: the buffer is cut into m chunks. In each host, owner j
 * adds chunk j of all its ranks. The owners of chunk j on all h hosts reduce it among themselves. Then
 * every rank fetches all chunks from the owners of its host. Each host sends 2(h-1)/h S bytes to other
 * hosts, spread over m connections.
 */

/** Chooses the all-reduce algorithm for the owners of a chunk, given the bytes of the whole buffer. */
export type Between = (name: OperationName, bytes: number, tuning: TuningTable) => Algorithm

export function hierarchical(between: Between): Algorithms {
  return {
    *allReduce(channel, operation) {
      const { rank } = channel
      const arithmetic = arithmeticOf(channel, operation)
      const hosts = ranksByHost(channel)
      const local = hosts.find((ranks) => ranks.includes(rank))!
      const smallest = Math.min(...hosts.map(({ length }) => length))
      const chunks = cutIntoChunks(bufferOf(operation), smallest)
      const place = local.indexOf(rank)
      const own = chunks[place]
      // Divide only once, by the size of the whole group.
      const undivided = operation.reduction === 'avg' ? 'sum' : operation.reduction
      const sum = { ...operation, reduction: undivided }
      yield* reduceToOwners(channel, sum, local, chunks)
      if (own !== undefined && own.bytes > 0) {
        if (hosts.length > 1) {
          const owners = hosts.map((ranks) => ranks[place]!)
          const count = own.bytes / arithmetic.bytesPerElement
          const part = { ...sum, input: own.at, output: own.at, count }
          // All owners of a host share its network link, so choose by the size of the whole buffer.
          const across = between(operation.name, bytesOf(operation), channel.tuning)
          yield* across(channelAmong(channel, owners), part)
        }
        arithmetic.finish(own.at, own.bytes)
      }
      yield* fetchFromOwners(channel, local, chunks)
    },
  }
}

/** Returns the ranks of each host, ascending. Hosts are in the order of their first ranks. */
function ranksByHost({ hosts, size }: Channel): number[][] {
  const byHost = new Map<number, number[]>()
  for (let rank = 0; rank < size; rank++) {
    const host = hosts[rank]!
    byHost.set(host, [...(byHost.get(host) ?? []), rank])
  }
  return [...byHost.values()]
}

function* fetchFromOwners(
  channel: Channel,
  local: readonly number[],
  chunks: readonly Piece[],
): Steps {
  const started: Message[] = []
  for (const peer of local) {
    if (peer === channel.rank) continue
    const own = chunks[local.indexOf(channel.rank)]
    const theirs = chunks[local.indexOf(peer)]
    if (own !== undefined) started.push(channel.send(peer, own.at, own.bytes))
    if (theirs !== undefined) started.push(channel.receive(peer, theirs.at, theirs.bytes))
  }
  yield* untilAll(started)
}

/** Returns a channel for some `ranks` of another channel. They include this rank. */
function channelAmong(channel: Channel, ranks: readonly number[]): Channel {
  return {
    heap: channel.heap,
    kernels: channel.kernels,
    tuning: channel.tuning,
    rank: ranks.indexOf(channel.rank),
    size: ranks.length,
    hosts: ranks.map((rank) => channel.hosts[rank]!),
    send: (to, at, bytes, count) => channel.send(ranks[to]!, at, bytes, count),
    receive: (from, at, bytes, count) => channel.receive(ranks[from]!, at, bytes, count),
    receiveMatched: (from, at, bytes) => channel.receiveMatched(ranks[from]!, at, bytes),
    skip: (from) => {
      channel.skip(ranks[from]!)
    },
    scratch: (bytes) => channel.scratch(bytes),
  }
}
