import { encode } from '@tsrun/core'
import fc from 'fast-check'
import { createMemory, heapOf } from '../../internals/distributed/arena.ts'
import {
  HEADER_BYTES,
  readHeader,
  writeHeader,
  decodeFault,
  encodeFault,
  streamKey,
} from '../../internals/distributed/engine.ts'

const word = fc.integer({ min: 0, max: 2 ** 32 - 1 })
const long = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER })
const headers = fc.record({
  kind: fc.integer({ min: 1, max: 255 }),
  space: fc.constantFrom(0, 1),
  group: word,
  sequence: word,
  index: word,
  fingerprint: fc.record({ kind: fc.integer(), root: word, count: long }),
  bytes: long,
  credit: word,
  place: word,
  guard: word,
})

describe('the frame header', () => {
  const heap = heapOf(createMemory(65_536))
  const view = new DataView(heap.bytes.buffer)

  it('is decoded as it was encoded', () => {
    fc.assert(
      fc.property(headers, fc.integer({ min: 0, max: 100 }), (header, place) => {
        writeHeader(heap, place * 4, header)
        expect(readHeader(view, place * 4)).toEqual(header)
      }),
    )
  })

  it('can be read at any offset', () => {
    const [header] = fc.sample(headers, 1)
    writeHeader(heap, 0, header!)
    heap.bytes.copyWithin(1001, 0, HEADER_BYTES)
    expect(readHeader(view, 1001)).toEqual(header)
  })

  it('is recognized by its first word', () => {
    const [header] = fc.sample(headers, 1)
    writeHeader(heap, 0, header!)
    heap.bytes[0]!++
    expect(readHeader(view, 0)).toBeUndefined()
    heap.bytes.fill(0, 0, HEADER_BYTES)
    expect(readHeader(view, 0)).toBeUndefined()
  })
})

describe('a fault frame', () => {
  it('carries both sides of a mismatch', () => {
    const mine = { kind: 5, root: 1, count: 10 }
    const theirs = { kind: -3, root: 0, count: 2 ** 40 }
    const fault = { reason: 'x', all: false, mismatch: { rank: 3, mine, peer: 7, theirs } }
    expect(decodeFault(encodeFault(fault))).toEqual(fault)
  })

  it('cuts a long reason, so that it always fits', () => {
    const fault = decodeFault(encodeFault({ reason: 'ü'.repeat(100_000), all: true }))
    expect(fault).toEqual({ reason: 'ü'.repeat(4096), all: true })
  })

  it('is validated when it is read', () => {
    const mismatch = { rank: 1, mine: { kind: 'x' }, peer: 2, theirs: null }
    expect(decodeFault(encode({ reason: 5, all: 'yes', mismatch }))).toEqual({
      reason: 'unknown reason',
      all: false,
    })
  })
})

describe('stream keys', () => {
  it('are different for different messages', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(fc.constantFrom(0, 1), fc.nat({ max: 2 ** 18 - 1 }), word), {
          selector: String,
        }),
        (streams) => {
          expect(new Set(streams.map((stream) => streamKey(...stream))).size).toBe(streams.length)
        },
      ),
    )
  })
})
