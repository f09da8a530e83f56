import { fstatSync, readdirSync, readFileSync } from 'node:fs'
import { memoryStore } from '@tsrun/store'
import { addressOf, isAvailable } from '@tsrun/native'
import fc from 'fast-check'
import { createMemory, heapOf, type Heap } from '../../internals/distributed/arena.ts'
import { agreeOnSharing } from '../../internals/distributed/groups.ts'
import { prepareTransport } from '../../internals/distributed/engine.ts'
import {
  copyFrom,
  checkRoom,
  closeSegments,
  hostsOf,
  openNeighbour,
  reservedBytes,
  createSegment,
  openSegment,
  type Neighbour,
  type Sharing,
  type Segment,
  type SegmentAddress,
} from '../../internals/distributed/transports.ts'
import { needing } from '../../needs.ts'

const native = isAvailable()
const { describe: describeNative } = needing(native.available, 'bindings')
const SIZE = 4 * 1024 * 1024

interface Side {
  readonly heap: Heap
  readonly segment: Segment
}

function openSide(): Side {
  const memory = createMemory(SIZE)
  const segment = createSegment(memory)
  return { heap: heapOf(memory), segment }
}

async function agree(
  segments: readonly (SegmentAddress | undefined)[],
  isRequired = false,
): Promise<PromiseSettledResult<Sharing | undefined>[]> {
  const store = memoryStore()
  return await Promise.allSettled(
    segments.map((_, rank) =>
      agreeOnSharing(store, { rank, segments, isRequired, wait: { timeout: 500 } }),
    ),
  )
}

function mappedHeaps(): number {
  return readFileSync('/proc/self/maps', 'utf8').split('memfd:tsrun-heap').length
}

function release(sharing: Sharing | undefined): void {
  if (sharing !== undefined) closeSegments(sharing)
}

describeNative('the shared memory of two ranks', () => {
  const sides = native.available ? [openSide(), openSide()] : []
  let neighbours: Neighbour[] = []

  beforeAll(async () => {
    const results = await agree(sides.map(({ segment }) => segment.address))
    neighbours = results.map((result, rank) => {
      if (result.status !== 'fulfilled') throw result.reason
      const { heap } = sides[rank]!
      const copy = (to: number, from: number, bytes: number): void => {
        heap.bytes.copyWithin(to, from, from + bytes)
      }
      return openNeighbour(heap, result.value!, [rank, 1 - rank], copy)
    })
    for (const { segment } of sides) segment.close()
  })

  afterAll(() => {
    for (const neighbour of neighbours) neighbour.release()
  })

  it('carries bytes through its rings in order, in pieces of any size', () => {
    const from = sides[0]!.heap.bytes
    const to = sides[1]!.heap.bytes
    const [source, target] = [1024 * 1024, 2 * 1024 * 1024]
    // the pattern repeats every PERIOD bytes, which no ring does
    const PERIOD = 65_521
    for (let i = 0; i < 4 * PERIOD; i++) from[source + i] = ((i % PERIOD) * 31) >> 3
    let next = 0
    let expected = 0
    const cuts = fc.array(fc.tuple(fc.boolean(), fc.integer({ min: 1, max: 70_000 })), {
      maxLength: 30,
    })
    fc.assert(
      fc.property(cuts, (steps) => {
        for (const [writes, length] of steps) {
          if (writes) {
            next += neighbours[0]!.writer.write(source + (next % PERIOD), length)
          } else {
            const taken = neighbours[1]!.reader.read(target, length)
            const at = source + (expected % PERIOD)
            const wanted = Buffer.from(from.subarray(at, at + taken))
            expect(wanted.equals(to.subarray(target, target + taken))).toBe(true)
            expected += taken
          }
        }
        expect(neighbours[1]!.reader.isEmpty).toBe(next === expected)
        expect(neighbours[0]!.writer.isFull).toBe(next - expected === 65_536)
      }),
      { numRuns: 30 },
    )
  })

  it('can be copied from the heap of the other rank, but never from beyond it', () => {
    sides[0]!.heap.bytes.fill(42, 3_000_000, 3_000_100)
    const base = addressOf(sides[1]!.heap.bytes)
    copyFrom(neighbours[1]!.heap, 3_000_000, base + 2_000_000, 100)
    expect(sides[1]!.heap.bytes.subarray(2_000_000, 2_000_100).every((byte) => byte === 42)).toBe(
      true,
    )
    expect(() => {
      copyFrom(neighbours[1]!.heap, SIZE - 50, base + 2_000_000, 100)
    }).toThrow(RangeError)
  })

  it('wakes a sleeping reader once', () => {
    const [writer, reader] = [neighbours[0]!.writer, neighbours[1]!.reader]
    expect(writer.shouldWake()).toBe(false)
    reader.announceSleep(true)
    expect([writer.shouldWake(), writer.shouldWake()]).toEqual([true, false])
  })

  it('remains readable after its writer has ended the connection', () => {
    const [writer, reader] = [neighbours[0]!.writer, neighbours[1]!.reader]
    const before = neighbours[0]!.reader.hasEnded
    // what other tests have left
    for (let taken = 1; taken > 0;) taken = reader.read(2 * 1024 * 1024, 70_000)
    expect(writer.write(1024 * 1024, 3)).toBe(3)
    writer.end()
    expect([reader.hasEnded, reader.isEmpty]).toEqual([true, false])
    expect(reader.read(2 * 1024 * 1024, 10)).toBe(3)
    expect([before, neighbours[0]!.reader.hasEnded]).toEqual([false, false])
  })

  it('leaves no files in the file system', () => {
    expect(readdirSync('/dev/shm').filter((name) => name.includes('tsrun-heap'))).toEqual([])
  })

  it('has no room for rings of more ranks than its size allows', () => {
    const peers = Array.from({ length: 20 }, (_, i) => i + 1)
    const sharing = { neighbours: [peers], segments: [] }
    expect(() => {
      checkRoom(sides[0]!.heap, 0, sharing)
    }).toThrow('TSRUN_ARENA')
  })

  it('keeps its rings below the engine memory', () => {
    expect(reservedBytes(64)).toBeLessThan(16 * 1024 * 1024)
  })
})

describeNative('the agreement on shared memory', () => {
  it('excludes ranks without a segment and ranks of other hosts', async () => {
    const sides = [openSide(), openSide(), openSide(), openSide()]
    const [a, b, c] = sides.map(({ segment }) => segment.address)
    const results = await agree([a, undefined, { ...b!, host: 'elsewhere' }, c])
    for (const result of results) {
      expect(result).toMatchObject({ value: { neighbours: [[3], [], [], [0]] } })
      if (result.status === 'fulfilled') release(result.value)
    }
    for (const { segment } of sides) segment.close()
  })

  it('falls back if a file is not the expected segment', async () => {
    const sides = [openSide(), openSide()]
    const [a, b] = sides.map(({ segment }) => segment.address)
    const odd = { ...b!, nonce: '00'.repeat(16) }
    expect(() => openSegment(odd)).toThrow('another file')
    for (const result of await agree([a, odd])) {
      expect(result).toMatchObject({ status: 'fulfilled', value: undefined })
    }
    for (const { segment } of sides) segment.close()
  })

  it('fails every rank with the same cause if one requires shared memory', async () => {
    const sides = [openSide(), openSide(), openSide()]
    const [a, b, c] = sides.map(({ segment }) => segment.address)
    const results = await agree([a, { ...b!, nonce: '00'.repeat(16) }, c], true)
    const reasons = results.map((result) => result.status === 'rejected' && String(result.reason))
    expect(reasons[0]).toContain('rank 0 cannot open the memory of rank 1')
    expect(reasons).toEqual([reasons[0], reasons[0], reasons[0]])
    for (const { segment } of sides) segment.close()
  })

  it('unmaps the memory of other ranks if they cannot connect', async () => {
    const sides = [openSide(), openSide()]
    const before = mappedHeaps()
    const [result, other] = await agree(sides.map(({ segment }) => segment.address))
    if (result?.status !== 'fulfilled') throw new Error('they share no memory')
    if (other?.status === 'fulfilled') release(other.value)
    const sharing = result.value!
    const { fd, bell } = sharing.segments[1]!
    const listen = { host: '127.0.0.1', ports: undefined, rank: 0 }
    const prepared = await prepareTransport('tcp', listen, 1)
    // the third rank is on another host, and does not call
    const endpoints = [prepared.endpoint, prepared.endpoint, prepared.endpoint]
    const apart = { ...sharing, neighbours: [...sharing.neighbours, []] }
    const options = { token: '', purpose: 'test', rank: 0, endpoints, timeout: 50, sharing: apart }
    const connecting = prepared.connect(sides[0]!.heap, { ...options, place: undefined })
    await expect(connecting).rejects.toMatchObject({ code: 'ERR_TSR_CONNECT' })
    for (const open of [fd, bell, sharing.bell!]) expect(() => fstatSync(open)).toThrow('EBADF')
    expect(mappedHeaps()).toBe(before)
    for (const { segment } of sides) segment.close()
  })

  it('treats ranks that all share memory with each other as one host', () => {
    expect(hostsOf({ neighbours: [[1], [0], [3], [2]] })).toEqual([0, 0, 2, 2])
    // 1 shares with both, which do not share with each other
    expect(hostsOf({ neighbours: [[1], [0, 2], [1], []] })).toEqual([0, 1, 2, 3])
  })
})
