import {
  algorithmsOf,
  type CollectiveOptions,
  type ProcessGroup,
  type AlgorithmName,
  type OperationName,
} from '@tsrun/distributed'
import { chooseAlgorithm, operationCodes } from '../../internals/distributed/algorithms.ts'
import { HEADER_BYTES } from '../../internals/distributed/engine.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

/** Elements of a slice: chunks of whole cache lines, some small and some of several segments. */
const slices = [128, 1024, 96 * 1024]
const ROOT = 1

/** Where a rank stands. S are the bytes of the whole buffer, s those of a slice. */
interface Place {
  readonly rank: number
  readonly n: number
  readonly S: number
  readonly s: number
}

interface Formula {
  readonly call: (
    group: ProcessGroup,
    slice: number,
    options: CollectiveOptions,
  ) => PromiseLike<unknown>
  /** Payload bytes that a rank sends. */
  readonly bytes: Partial<Record<AlgorithmName, (place: Place) => number>>
}

const log2 = Math.log2
/** The largest power of two up to n, and this rank's part in it. */
function hypercube({ rank, n }: Place): { corners: number; role: 'gives' | 'takes' | 'alone' } {
  const corners = 2 ** Math.floor(log2(n))
  if (rank >= 2 * (n - corners)) return { corners, role: 'alone' }
  return { corners, role: rank % 2 === 0 ? 'gives' : 'takes' }
}
/** Sent to the partner without a corner, or by it. */
const beside = (place: Place): number => (hypercube(place).role === 'alone' ? 0 : place.S)
const inside = (place: Place, bytes: (corners: number) => number): number => {
  const { corners, role } = hypercube(place)
  return beside(place) + (role === 'gives' ? 0 : bytes(corners))
}
/** The rank's number counted from the root, and the bit that says what its subtree is. */
function tree({ rank, n }: Place): { virtual: number; family: number; children: number } {
  const virtual = (rank - ROOT + n) % n
  const lowest = virtual === 0 ? 2 ** Math.ceil(log2(n)) : virtual & -virtual
  const bits = Array.from({ length: 31 }, (_, k) => 2 ** k)
  const children = bits.filter((bit) => bit < lowest && virtual + bit < n).length
  return { virtual, family: Math.min(lowest, n - virtual), children }
}
const others = ({ n, s }: Place): number => (n - 1) * s
const onlyRoot =
  (bytes: (place: Place) => number) =>
  (place: Place): number =>
    place.rank === ROOT ? bytes(place) : 0
const notRoot =
  (bytes: (place: Place) => number) =>
  (place: Place): number =>
    place.rank === ROOT ? 0 : bytes(place)
/** Uneven slices: rank r has r + 1 of them. */
const unevenCounts = (n: number, slice: number): number[] =>
  Array.from({ length: n }, (_, rank) => (rank + 1) * slice)
const total = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0)
const unevenTotal = ({ n, s }: Place): number => ((n * (n + 1)) / 2) * s

const allReduceBytes: Formula['bytes'] = {
  ring: ({ n, S }) => (2 * (n - 1) * S) / n,
  direct: ({ n, S }) => (2 * (n - 1) * S) / n,
  'recursive-doubling': (place) => inside(place, (corners) => log2(corners) * place.S),
  'halving-doubling': (place) =>
    inside(place, (corners) => (2 * (corners - 1) * place.S) / corners),
  // Every rank is a host of its own, so all goes between hosts.
  hierarchical: (place) =>
    allReduceBytes[chooseAlgorithm('allReduce', { bytes: place.S, layout: 'apart' })]!(place),
}
const floats = (length: number): Float32Array => new Float32Array(length)

const formulas: Partial<Record<OperationName, Formula>> = {
  allReduce: {
    call: (group, slice, options) => group.allReduce(floats(slice * group.size), options),
    bytes: allReduceBytes,
  },
  allReduceCoalesced: {
    call: (group, slice, options) =>
      group.allReduceCoalesced([floats(slice * (group.size - 1)), floats(slice)], options),
    bytes: allReduceBytes,
  },
  broadcast: {
    call: (group, slice, options) => group.broadcast(floats(slice * group.size), ROOT, options),
    bytes: {
      'binomial-tree': (place) => tree(place).children * place.S,
      chain: (place) => (tree(place).virtual === place.n - 1 ? 0 : place.S),
      direct: onlyRoot(({ n, S }) => (n - 1) * S),
    },
  },
  reduce: {
    call: (group, slice, options) => group.reduce(floats(slice * group.size), ROOT, options),
    bytes: {
      'binomial-tree': notRoot(({ S }) => S),
      chain: notRoot(({ S }) => S),
      direct: ({ rank, n, S }) => ((n - 1) * S) / n + (rank === ROOT ? 0 : S / n),
    },
  },
  reduceScatter: {
    call: (group, slice, options) =>
      group.reduceScatter(floats(slice), floats(slice * group.size), options),
    bytes: {
      ring: others,
      'recursive-halving': others,
      direct: others,
    },
  },
  allGather: {
    call: (group, slice, options) =>
      group.allGather(floats(slice * group.size), floats(slice), options),
    bytes: { ring: others, bruck: others, direct: others },
  },
  allGatherV: {
    call: (group, slice, options) => {
      const counts = unevenCounts(group.size, slice)
      return group.allGatherV(floats(total(counts)), floats(counts[group.rank]!), counts, options)
    },
    // all slices but that of the next rank
    bytes: { ring: (place) => unevenTotal(place) - (((place.rank + 1) % place.n) + 1) * place.s },
  },
  gather: {
    call: (group, slice, options) => {
      const output = group.rank === ROOT ? floats(slice * group.size) : null
      return group.gather(output, floats(slice), ROOT, options)
    },
    bytes: {
      'binomial-tree': notRoot((place) => tree(place).family * place.s),
      linear: notRoot(({ s }) => s),
    },
  },
  scatter: {
    call: (group, slice, options) => {
      const input = group.rank === ROOT ? floats(slice * group.size) : null
      return group.scatter(floats(slice), input, ROOT, options)
    },
    bytes: {
      'binomial-tree': (place) => (tree(place).family - 1) * place.s,
      linear: onlyRoot(others),
    },
  },
  allToAll: {
    call: (group, slice, options) =>
      group.allToAll(floats(slice * group.size), floats(slice * group.size), options),
    bytes: {
      pairwise: others,
    },
  },
  allToAllV: {
    call: (group, slice, options) => {
      const counts = unevenCounts(group.size, slice)
      const coming = counts.map(() => counts[group.rank]!)
      return group.allToAllV(floats(total(coming)), floats(total(counts)), coming, counts, options)
    },
    bytes: { pairwise: (place) => unevenTotal(place) - (place.rank + 1) * place.s },
  },
  barrier: {
    call: (group, _, options) => group.barrier(options),
    bytes: { dissemination: () => 0 },
  },
  monitoredBarrier: { call: (group) => group.monitoredBarrier(), bytes: { linear: () => 0 } },
}

/** Payload bytes that a rank has sent so far: all of them but the headers. */
function payloadSent({ engine }: SteppedWorld['ranks'][number]): number {
  const links = engine.links.filter((link) => link !== undefined)
  return total(links.map(({ traffic }) => traffic.bytesSent - traffic.framesSent * HEADER_BYTES))
}

describe('bytes sent per rank', () => {
  it('are given by a formula for every algorithm', () => {
    const collectives = (Object.keys(operationCodes) as OperationName[]).filter(
      (name) => name !== 'send' && name !== 'recv',
    )
    for (const name of collectives) {
      // on a window nothing is sent
      const sending = algorithmsOf(name).filter((algorithm) => algorithm !== 'window')
      expect(Object.keys(formulas[name]?.bytes ?? {}).sort()).toEqual(sending.sort())
    }
  })

  const cases = Object.entries(formulas).flatMap(([name, { call, bytes }]) =>
    Object.entries(bytes).map(([algorithm, formula]) => ({ name, algorithm, call, formula })),
  )

  it.each(cases)(
    'equal the formula of the algorithm: $name by $algorithm',
    async ({ name, algorithm, call, formula }) => {
      for (const n of [2, 3, 4, 5, 8, 9]) {
        const world = new SteppedWorld(n, { memory: 64 * 1024 * 1024 })
        for (const slice of slices.slice(0, n > 5 ? 2 : 3)) {
          const before = world.ranks.map(payloadSent)
          const options = { algorithm: algorithm as AlgorithmName }
          await world.finish(world.groups.map((group) => call(group, slice, options)))
          world.drain()
          const sent = world.ranks.map((each, rank) => payloadSent(each) - before[rank]!)
          const s = 4 * slice
          const expected = sent.map((_, rank) => formula({ rank, n, s, S: n * s }))
          expect([name, n, slice, sent]).toEqual([name, n, slice, expected])
        }
      }
    },
  )
})
