import type { Channel } from './channel.ts'

/** A channel among some ranks of another, in the order given; this rank is one of them. */
export function channelAmong(channel: Channel, ranks: readonly number[]): Channel {
  return {
    ...channel,
    rank: ranks.indexOf(channel.rank),
    size: ranks.length,
    hosts: ranks.map((rank) => channel.hosts[rank]!),
    send: (to, at, bytes, count) => channel.send(ranks[to]!, at, bytes, count),
    receive: (from, at, bytes, count) => channel.receive(ranks[from]!, at, bytes, count),
    receiveMatched: (from, at, bytes) => channel.receiveMatched(ranks[from]!, at, bytes),
    skip: (from) => {
      channel.skip(ranks[from]!)
    },
  }
}
