import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  parseStepRange,
  SpanRecorder,
  traceWait,
  parseSpanFileName,
} from '@tsrun/distributed/record'
import { openRankTrace } from '../../internals/distributed/record.ts'
import { SpanFileReader } from '../../internals/observe.ts'

let directory = ''
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(directory, { recursive: true, force: true })
})

const all = { steps: { first: 1, last: Infinity }, bytes: Infinity }
const owner = { runId: 'r', restartCount: 1, rank: 2, worldSize: 4, node: 0 }

function read(): SpanFileReader {
  const [name] = readdirSync(directory)
  return new SpanFileReader(join(directory, name!))
}

it.each([
  ['10:20', { first: 10, last: 20 }],
  ['10:', { first: 10, last: Infinity }],
  [':20', { first: 1, last: 20 }],
  ['15', { first: 15, last: 15 }],
  [':', { first: 1, last: Infinity }],
  ['', undefined],
  ['0:3', undefined],
  ['5:4', undefined],
  ['1:2:3', undefined],
  ['a', undefined],
])('the trace option reads the steps %j', (text, range) => {
  expect(parseStepRange(text)).toEqual(range)
})

it('a rank trace contains the spans of every recorder, and the steps that they report', () => {
  const trace = openRankTrace(directory, { steps: { first: 2, last: 3 }, bytes: Infinity }, owner)
  const recorder = new SpanRecorder({ rank: 9 })
  for (let step = 1; step <= 5; step++) {
    recorder.record('F', step, step + 0.5, { microbatch: step })
    trace.endStep(step, 1 / step)
    // a trainer and its program may both report it
    trace.endStep(step)
  }
  trace.close()
  recorder.record('F', 9, 10)
  const { header } = read()
  expect(header).toMatchObject({ ...owner, pid: process.pid })
  const spans = [...read().spans()].filter(({ kind }) => kind !== 'gc')
  expect(spans.map(({ kind, step, microbatch }) => [kind, step ?? microbatch])).toEqual([
    ['F', 2],
    ['step', 2],
    ['F', 3],
    ['step', 3],
  ])
  expect(spans.every(({ rank }) => rank === 2)).toBe(true)
  expect(spans[3]!.start).toBe(spans[1]!.end)
  expect(spans.map(({ loss }) => loss)).toEqual([undefined, 1 / 2, undefined, 1 / 3])
})

it('a rank trace omits steps with dropped spans, as at the start of a resumed job', () => {
  const trace = openRankTrace(
    directory,
    { steps: { first: 500, last: 502 }, bytes: Infinity },
    owner,
  )
  const recorder = new SpanRecorder({ rank: 2 })
  for (let step = 500; step <= 503; step++) {
    recorder.record('F', step, step + 0.5, { microbatch: step })
    trace.endStep(step)
  }
  trace.close()
  const steps = [...read().spans()].flatMap(({ kind, step }) => (kind === 'step' ? step : []))
  expect(steps).toEqual([501, 502])
})

it('a rank trace keeps only the newest spans, in files that replace each other', async () => {
  const trace = openRankTrace(directory, { ...all, bytes: 2000 }, owner)
  const recorder = new SpanRecorder({ rank: 2 })
  const names = new Set<string>()
  for (let i = 0; i < 200 && names.size < 3; i++) {
    for (let k = 0; k < 50; k++) recorder.record('F', i, i + 1, { name: 'pass', microbatch: k })
    await sleep(20)
    const found = readdirSync(directory)
    expect(found.length).toBeLessThanOrEqual(2)
    names.add(found.at(-1)!)
  }
  recorder.record('F', 1000, 1001, { name: 'pass' })
  trace.close()
  const [name] = readdirSync(directory)
  const place = { restartCount: 1, rank: 2, pid: process.pid }
  expect([...names].map((each) => parseSpanFileName(each))).toEqual(
    [0, 1, 2].map((part) => ({ ...place, part })),
  )
  expect(parseSpanFileName(name!)!.part).toBeGreaterThanOrEqual(2)
  expect([...read().spans()].at(-1)).toMatchObject({ start: 1000, name: 'pass' })
})

it('a rank trace begins the first step with the first span of training', () => {
  const trace = openRankTrace(directory, all, owner)
  const recorder = new SpanRecorder({ rank: 2 })
  recorder.record('collective', 1, 2)
  recorder.record('batch', 3, 4)
  recorder.record('F', 4, 5)
  trace.endStep(1)
  trace.close()
  const step = [...read().spans()].find(({ kind }) => kind === 'step')
  expect(step).toMatchObject({ start: 3, step: 1 })
})

it('a rank trace contains garbage collections at their times', async () => {
  const trace = openRankTrace(directory, all, owner)
  const kept: unknown[] = []
  for (let i = 0; i < 200_000; i++) kept.push({ text: `${i}` })
  // they are reported later
  for (let i = 0; i < 100 && readGc().length === 0; i++) await sleep(50)
  trace.close()
  expect(kept.length).toBe(200_000)
  const [collection] = readGc()
  expect(collection!.start).toBeGreaterThanOrEqual(read().header.monotonic)

  function readGc() {
    return [...read().spans()].filter(({ kind }) => kind === 'gc')
  }
})

it('tracing functions return the value of the traced call if no trace is recorded', async () => {
  await expect(traceWait('input', {}, () => Promise.resolve(3))).resolves.toBe(3)
})
