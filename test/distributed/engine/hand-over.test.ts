import {
  createMemory,
  heapOf,
  instantiateKernels,
  type Heap,
} from '../../internals/distributed/arena.ts'
import { fingerprintOf, type Operation } from '../../internals/distributed/algorithms.ts'
import {
  createEpochs,
  Epochs,
  WindowRun,
  type EpochContext,
} from '../../internals/distributed/engine.ts'
import { createNetwork } from '../../internals/distributed/transports.ts'

const SIZE = 3
const INPUT = 2 * 1024 * 1024
const OUTPUT = 8 * 1024 * 1024
/** Where each of the two threads of a rank has its scratch. */
const SCRATCH = [14 * 1024 * 1024, 15 * 1024 * 1024] as const
/** Two blocks and a part of one. */
const COUNT = 2 * SIZE * 32 * 1024 + 1001

function operationOf(name: 'allReduce' | 'reduceScatter' | 'allGather'): Operation {
  return {
    ...{ name, algorithm: 'window', group: 0, sequence: 7, flight: 1, begun: 0 },
    ...{ dtype: 'float32', deterministic: false },
    reduction: 'avg',
    ...{ input: INPUT, output: name === 'allReduce' ? INPUT : OUTPUT, count: COUNT },
    ...{ peer: 0, table: 0, tag: 0, timeout: 1000, aborted: false, isReserved: false },
  }
}

interface Rank {
  readonly heap: Heap
  /** Runs the operation on one of the two threads. */
  readonly create: (thread: 0 | 1, begun: number) => WindowRun
}

function createRanks(operation: Operation): Rank[] {
  const network = createNetwork(SIZE, [0, 0, 0])
  const ranks = [0, 1, 2]
  for (const rank of ranks) network.heaps[rank] = heapOf(createMemory(16 * 1024 * 1024))
  return ranks.map((rank) => {
    const heap = network.heaps[rank]!
    const epochs = createEpochs(1)
    const context: EpochContext = {
      ...{ rank, waiting: [], slots: network.slots!.slotsOf(rank) },
      kernels: instantiateKernels(heap.memory),
      get: (peer, at, from, bytes) => {
        heap.bytes.set(network.heaps[peer]!.bytes.subarray(from, from + bytes), at)
      },
      onMismatch: () => {
        throw new Error('the ranks run the same')
      },
    }
    const create: Rank['create'] = (thread, begun) => {
      let scratch: number = SCRATCH[thread]
      const run = new WindowRun(context, new Epochs(epochs, 0), {
        operation: { ...operation, begun },
        fingerprint: fingerprintOf(operation),
        ...{ group: { id: 0, rank, ranks, layout: 'together' }, state: 'running', started: 0 },
        resume: () => undefined,
        scratch: (bytes) => (scratch += bytes) - bytes,
      })
      run.restart()
      return run
    }
    return { heap, create }
  })
}

/** Elements that a rank publishes. */
function published({ name }: Operation): number {
  return name === 'reduceScatter' ? COUNT * SIZE : COUNT
}

const inputOf = (rank: number, i: number): number => (i % 100) + rank
const averageOf = (i: number): number => Math.fround((3 * (i % 100) + 3) * Math.fround(1 / 3))

const expected = {
  allReduce: (_: number, i: number) => averageOf(i),
  reduceScatter: (rank: number, i: number) => averageOf(rank * COUNT + i),
  allGather: (_: number, i: number) => inputOf(Math.floor(i / COUNT), i % COUNT),
}

const outputs = new Map<string, Buffer>()

/** The bytes that a collective gives a rank, computed once. */
function outputOf(name: keyof typeof expected, rank: number): Buffer {
  const key = `${name} ${rank}`
  const length = name === 'allGather' ? COUNT * SIZE : COUNT
  const known =
    outputs.get(key) ??
    Buffer.from(Float32Array.from({ length }, (_, i) => expected[name](rank, i)).buffer)
  outputs.set(key, known)
  return known
}

/** The elements that a rank gives, computed once. */
const inputs = Array.from({ length: SIZE }, (_, rank) =>
  Float32Array.from({ length: COUNT * SIZE }, (_, i) => inputOf(rank, i)),
)

/** Another thread takes over what a rank does after so many polls; returns whether it came to that. */
function run(name: keyof typeof expected, rank: number, looks: number): boolean {
  const operation = operationOf(name)
  const ranks = createRanks(operation)
  for (const [member, { heap }] of ranks.entries()) {
    const input = inputs[member]!.subarray(0, published(operation))
    new Float32Array(heap.bytes.buffer, INPUT, input.length).set(input)
  }
  const runs = ranks.map(({ create }) => create(0, 0))
  const done = runs.map(() => false)
  let turns = 0
  let hasChanged = false
  while (done.includes(false)) {
    for (const [i, each] of runs.entries()) {
      if (done[i] === true) continue
      if (i === rank && turns++ === looks) {
        runs[i] = ranks[i]!.create(1, each.begun)
        hasChanged = true
      } else {
        done[i] = each.next().done === true
      }
    }
  }
  for (const [member, { heap }] of ranks.entries()) {
    const wanted = outputOf(name, member)
    const output = Buffer.from(heap.bytes.buffer, operation.output, wanted.byteLength)
    expect({ looks, member, isRight: output.equals(wanted) }).toMatchObject({ isRight: true })
  }
  return hasChanged
}

describe('a large collective that moves to another thread', () => {
  it.each(['allReduce', 'reduceScatter', 'allGather'] as const)(
    'gives the same result, whatever step it moves after: %s',
    (name) => {
      for (let rank = 0; rank < SIZE; rank++) {
        let looks = 1
        while (run(name, rank, looks)) looks++
        expect(looks).toBeGreaterThan(1)
      }
    },
  )
})
