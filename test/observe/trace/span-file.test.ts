import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spanKinds, type Span } from '@tsrun/distributed/record'
import { SpanFileReader } from '../../internals/observe.ts'
import { writeSpans } from './files.ts'

let directory = ''
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(directory, { recursive: true, force: true })
})

const spans: Span[] = [
  { rank: 3, kind: 'F', start: 10.25, end: 12.5, stage: 0, microbatch: 7, cpu: 1.5 },
  { rank: 3, kind: 'recv', start: 1, end: 4, name: 'activation', bytes: 2 ** 40, peer: 0, tag: 9 },
  { rank: 3, kind: 'collective', start: 5, end: 6, name: 'é'.repeat(60), sequence: 1, joint: 1 },
  { rank: 3, kind: 'recv', start: 7, end: 7, name: 'activation', waited: 0 },
]

it('a span file returns the spans that were written, whatever their number', () => {
  const many = Array.from({ length: 20_000 }, (_, i): Span => ({
    ...{ rank: 3, kind: spanKinds[i % spanKinds.length]!, start: i, end: i + 0.125 },
    ...(i % 3 === 0 && { name: `name ${i % 500}` }),
    ...(i % 2 === 0 && { microbatch: i }),
  }))
  const path = writeSpans(directory, many)
  const file = new SpanFileReader(path)
  expect(file.header).toMatchObject({ rank: 3, worldSize: 2, host: 'one' })
  expect([...file.spans()]).toEqual(many)
  expect(statSync(path).mode & 0o077).toBe(0)
})

it('a span file is readable after a crash, up to the last whole span', () => {
  const path = writeSpans(directory, spans)
  const bytes = readFileSync(path)
  const begin = bytes.indexOf(10) + 1
  let before = 0
  for (let length = begin; length <= bytes.length; length++) {
    writeFileSync(path, bytes.subarray(0, length))
    const found = [...new SpanFileReader(path).spans()]
    expect(found).toEqual(spans.slice(0, found.length))
    expect(found.length).toBeGreaterThanOrEqual(before)
    before = found.length
  }
  expect(before).toBe(spans.length)
})

it('a span file is read up to the first damage, and other files are refused', () => {
  const path = writeSpans(directory, spans)
  const bytes = readFileSync(path)
  bytes[bytes.indexOf(10) + 1] = 254
  writeFileSync(path, bytes)
  expect([...new SpanFileReader(path).spans()]).toEqual([])
  for (const text of ['', '{}\n', '{"format":"tsrun-spans","version":2}\n', 'no end of line']) {
    writeFileSync(path, text)
    expect(() => new SpanFileReader(path)).toThrow('not the spans of a rank')
  }
})

it('a span file shortens long names and keeps others', () => {
  const path = writeSpans(directory, [
    { rank: 0, kind: 'send', start: 0, end: 1, name: 'x'.repeat(5000) },
    { rank: 0, kind: 'send', start: 1, end: 2, name: 'y' },
  ])
  const names = [...new SpanFileReader(path).spans()].map(({ name }) => name)
  expect(names).toEqual(['x'.repeat(200), 'y'])
})
