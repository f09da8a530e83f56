import fc from 'fast-check'
import { algorithmsOf, type OperationName } from '@tsrun/distributed'
import {
  cutIntoChunks,
  cutIntoSegments,
  segmentBytes,
  chooseAlgorithm,
  findAlgorithm,
  resolveAlgorithm,
  builtInTuning,
  operationCodes,
  type Layout,
  type Operation,
} from '../../internals/distributed/algorithms.ts'

const sizes = fc.integer({ min: 0, max: 10_000_000 })

describe('chunks and segments', () => {
  it('cover the buffer without gaps', () => {
    fc.assert(
      fc.property(sizes, fc.integer({ min: 1, max: 64 }), (bytes, parts) => {
        const chunks = cutIntoChunks({ at: 0, bytes }, parts)
        expect(chunks).toHaveLength(parts)
        let at = 0
        for (const chunk of chunks) {
          expect(chunk.at).toBe(at)
          expect(chunk.at % 64 === 0 || chunk.at === bytes).toBe(true)
          at += chunk.bytes
        }
        expect(at).toBe(bytes)
        expect(chunks[0]!.bytes).toBeLessThan(bytes / parts + 64)
      }),
    )
  })

  it('have a bounded size, and an empty buffer has exactly one of each', () => {
    fc.assert(
      fc.property(sizes, sizes, (start, bytes) => {
        const size = segmentBytes(bytes)
        const segments = cutIntoSegments({ at: start, bytes }, size)
        expect(size).toBeGreaterThanOrEqual(256 * 1024)
        expect(size).toBeLessThanOrEqual(512 * 1024)
        expect(size % 64).toBe(0)
        expect(segments.length).toBeGreaterThan(0)
        let at = start
        for (const segment of segments) {
          expect(segment.at).toBe(at)
          expect(segment.bytes).toBeLessThanOrEqual(size)
          at += segment.bytes
        }
        expect(at).toBe(start + bytes)
      }),
    )
  })
})

describe('the choice of algorithm', () => {
  const operations = Object.keys(operationCodes) as OperationName[]

  it.each(operations)('returns an implemented algorithm for every size of %s', (operation) => {
    for (const layout of ['apart', 'together', 'mixed'] as const) {
      for (let bytes = 0; bytes < 1e9; bytes = bytes * 2 + 1) {
        const name = chooseAlgorithm(operation, { bytes, layout })
        expect(algorithmsOf(operation)).toContain(name)
        const found = findAlgorithm({ name: operation, algorithm: name }, 4)
        expect(found).toBeInstanceOf(Function)
      }
    }
  })

  const choose = (operation: OperationName, bytes: number, layout: Layout = 'apart'): string =>
    chooseAlgorithm(operation, { bytes, layout })

  it('is one for messages in groups without windows', () => {
    const facts = { name: 'allReduce', algorithm: 'auto', dtype: 'float32', deterministic: false }
    const resolve = (count: number): string =>
      resolveAlgorithm({ ...facts, count } as Operation, 20, 'together', builtInTuning).algorithm
    expect([resolve(1024), resolve(16 * 1024 * 1024)]).toEqual(['recursive-doubling', 'direct'])
  })

  it('prefers few steps for small buffers and few bytes for large ones', () => {
    expect(choose('allReduce', 4096)).toBe('recursive-doubling')
    expect(choose('allReduce', 1024 * 1024)).toBe('halving-doubling')
    expect(choose('allReduce', 128 * 1024 * 1024)).toBe('ring')
    expect(choose('broadcast', 4096)).toBe('binomial-tree')
    expect(choose('broadcast', 64 * 1024 * 1024)).toBe('chain')
    expect(choose('allReduce', 64 * 1024 * 1024, 'together')).toBe('direct')
    expect(choose('broadcast', 64 * 1024 * 1024, 'together')).toBe('direct')
    expect(choose('allReduce', 4096, 'mixed')).toBe('hierarchical')
  })
})
