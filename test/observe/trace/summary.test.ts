import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { findTracedRun, summarizeTrace, writeChromeTrace } from '@tsrun/observe'
import type { Span } from '@tsrun/distributed/record'
import { alignClocks } from '../../internals/observe.ts'
import { RUN, writeSpans } from './files.ts'

let directory = ''
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(directory, { recursive: true, force: true })
})

const group = 0

/**
 * One step of GPipe with two stages and two micro-batches: forward takes 2 ms, backward 4, messages
 * nothing, and the second stage computes `slower` times as long.
 */
function pipelineStep(slower = 1): [Span[], Span[]] {
  const [f, b] = [2, 4]
  const first: Span[] = []
  const second: Span[] = []
  let at = 0
  for (const microbatch of [0, 1]) {
    first.push({ rank: 0, kind: 'F', start: at, end: (at += f), stage: 0, microbatch })
    first.push({ ...message(0, 'send', 'forward', microbatch), start: at, end: at })
  }
  let time = 0
  const arrived: number[] = []
  for (const microbatch of [0, 1]) {
    const ready = f * (microbatch + 1)
    if (ready > time) wait(second, 1, time, ready, message(1, 'recv', 'forward', microbatch))
    else second.push({ ...message(1, 'recv', 'forward', microbatch), start: time, end: time })
    time = Math.max(time, ready)
    second.push({
      rank: 1,
      kind: 'F',
      start: time,
      end: (time += f * slower),
      stage: 1,
      microbatch,
    })
  }
  for (const microbatch of [0, 1]) {
    second.push({
      rank: 1,
      kind: 'B',
      start: time,
      end: (time += b * slower),
      stage: 1,
      microbatch,
    })
    second.push({ ...message(1, 'send', 'backward', microbatch), start: time, end: time })
    arrived.push(time)
  }
  for (const microbatch of [0, 1]) {
    wait(first, 0, at, arrived[microbatch]!, message(0, 'recv', 'backward', microbatch))
    at = Math.max(at, arrived[microbatch]!)
    first.push({ rank: 0, kind: 'B', start: at, end: (at += b), stage: 0, microbatch })
  }
  for (const [rank, own] of [first, second].entries()) {
    own.push({ rank, kind: 'step', start: 0, end: at, step: 1 })
  }
  // after its last backward pass the second stage waits for the first one
  wait(second, 1, time, at, { ...loss(1, time), waited: at - time })
  first.push({ ...loss(0, at), end: at })
  return [first, second]
}

function message(
  rank: number,
  kind: 'send' | 'recv',
  direction: 'forward' | 'backward',
  microbatch: number,
): Omit<Span, 'start' | 'end'> {
  const tag = 2 * microbatch + (direction === 'forward' ? 0 : 1)
  return { rank, kind, peer: 1 - rank, group, tag, sequence: 0, bytes: 64, waited: 0 }
}

function loss(rank: number, start: number): Span {
  return { rank, kind: 'collective', start, end: start, group, sequence: 7, joint: 1, name: 'loss' }
}

function wait(
  spans: Span[],
  rank: number,
  start: number,
  end: number,
  operation: Omit<Span, 'start' | 'end'>,
): void {
  if (end <= start) return
  spans.push({ ...operation, start, end, waited: end - start })
  spans.push({ rank, kind: 'wait', start, end, waited: end - start })
}

function write(ranks: readonly Span[][]): void {
  for (const [rank, spans] of ranks.entries()) writeSpans(directory, spans, { rank })
}

it('finds only bubble time in a balanced pipeline', () => {
  write(pipelineStep())
  const summary = summarizeTrace(findTracedRun([directory])!)!
  expect(summary).toMatchObject({ runId: RUN, ranks: 2, hosts: 1, attempts: 1 })
  expect(summary.steps).toEqual({ first: 1, last: 1, count: 1 })
  // 2 * (2 + 4) of computing, and a forward and a backward pass of another stage
  for (const { step, shares } of summary.byRank) {
    expect(step).toBeCloseTo(18, 9)
    expect(shares.compute).toBeCloseTo(12, 9)
    expect(shares.bubble).toBeCloseTo(6, 9)
    expect(shares.imbalance).toBeCloseTo(0, 9)
    expect(shares.overhead).toBeCloseTo(0, 9)
  }
})

it('finds the slowest stage, and the critical path passes through it', () => {
  write(pipelineStep(3))
  const { byRank, criticalPath, slowest } = summarizeTrace(findTracedRun([directory])!)!
  const [first, second] = byRank
  expect(first!.step).toBeCloseTo(2 + 12 + 24 + 4, 9)
  expect(second!.shares.compute).toBeCloseTo(36, 9)
  expect(first!.shares.imbalance).toBeGreaterThan(10)
  expect(slowest).toBe(1)
  expect(second!.causes).toBeGreaterThan(first!.causes)
  const onPath = (rank: number): number =>
    criticalPath.reduce((sum, each) => sum + (each.rank === rank ? each.milliseconds : 0), 0)
  // one forward pass of the first stage, all of the second one, one backward pass of the first
  expect(onPath(0)).toBeCloseTo(2 + 4, 9)
  expect(onPath(1)).toBeCloseTo(36, 9)
})

it('in data parallel training, waits for slower ranks are imbalance, and transfers are communication', () => {
  const rank = (own: number, backward: number): Span[] => [
    { rank: own, kind: 'batch', start: 0, end: 1 },
    { rank: own, kind: 'F', start: 1, end: 3 },
    { rank: own, kind: 'B', start: 3, end: backward },
    { rank: own, kind: 'collective', start: backward, end: 10, group, sequence: 3, joint: 1 },
    { rank: own, kind: 'wait', start: backward, end: 10 },
    { rank: own, kind: 'optimizer', start: 10, end: 11 },
    { rank: own, kind: 'step', start: 0, end: 12, step: 5 },
  ]
  write([rank(0, 5), rank(1, 8)])
  const { byRank, slowest } = summarizeTrace(findTracedRun([directory])!)!
  expect(byRank.map(({ shares }) => shares)).toEqual([
    { compute: 5, bubble: 0, imbalance: 3, communication: 2, input: 1, overhead: 1 },
    { compute: 8, bubble: 0, imbalance: 0, communication: 2, input: 1, overhead: 1 },
  ])
  expect(slowest).toBe(1)
})

it('summarizes the selected steps, or the whole trace if it has no steps', () => {
  const steps = Array.from({ length: 10 }, (_, i): Span[] => [
    { rank: 0, kind: 'F', start: 10 * i, end: 10 * i + i },
    { rank: 0, kind: 'step', start: 10 * i, end: 10 * i + 10, step: i + 1 },
  ])
  write([steps.flat()])
  const run = findTracedRun([directory])!
  expect(summarizeTrace(run)!.steps).toEqual({ first: 1, last: 10, count: 10 })
  const some = summarizeTrace(run, { first: 3, last: 4 })!
  expect(some.steps).toEqual({ first: 3, last: 4, count: 2 })
  expect(some.byRank[0]!.shares.compute).toBeCloseTo(2.5, 9)
  expect(summarizeTrace(run, { first: 30, last: 40 })).toBeUndefined()
  write([steps.flat().filter(({ kind }) => kind !== 'step')])
  const whole = summarizeTrace(findTracedRun([directory])!)!
  expect(whole.steps).toBeUndefined()
  expect(whole.mean.shares.compute).toBeCloseTo(45, 9)
})

it('uses the step numbers of the ranks that report them, including step 0', () => {
  const rank = (own: number, reports: boolean): Span[] => [
    { rank: own, kind: 'F', start: 0, end: 4 },
    ...(reports ? [{ rank: own, kind: 'step', start: 0, end: 10, step: 0 } as const] : []),
    { rank: own, kind: 'F', start: 10, end: 15 },
    ...(reports ? [{ rank: own, kind: 'step', start: 10, end: 20, step: 1 } as const] : []),
  ]
  write([rank(0, true), rank(1, false)])
  const summary = summarizeTrace(findTracedRun([directory])!)!
  expect(summary.steps).toEqual({ first: 0, last: 1, count: 2 })
  for (const { step, shares } of summary.byRank) {
    expect([step, shares.compute]).toEqual([10, 4.5])
  }
})

it('joins the files of two processes that had the same rank one after the other', () => {
  const step = (rank: number, number: number): Span[] => [
    { rank, kind: 'F', start: 10 * number, end: 10 * number + 5 },
    { rank, kind: 'step', start: 10 * number, end: 10 * number + 10, step: number },
  ]
  writeSpans(directory, [...step(0, 1), ...step(0, 2)], { rank: 0 })
  writeSpans(directory, step(1, 1), { rank: 1, pid: 7 })
  writeSpans(directory, step(1, 2), { rank: 1, pid: 5, time: 1_750_000_000_010 })
  const summary = summarizeTrace(findTracedRun([directory])!)!
  expect(summary).toMatchObject({ ranks: 2, steps: { first: 1, last: 2, count: 2 } })
  expect(summary.mean.shares.compute).toBe(5)
})

it('summarizes a step with 150 000 passes', () => {
  const passes = Array.from({ length: 150_000 }, (_, i): Span => {
    return { rank: 0, kind: 'F', start: i, end: i + 1, stage: i % 2, microbatch: i >> 1 }
  })
  write([passes])
  expect(summarizeTrace(findTracedRun([directory])!)!.mean.step).toBe(150_000)
})

it('summarizes the last attempt of the newest or the named run', () => {
  const f = (end: number): Span[] => [{ rank: 0, kind: 'F', start: 0, end }]
  writeSpans(directory, f(1), { restartCount: 0, pid: 1 })
  writeSpans(directory, f(2), { restartCount: 1, pid: 2 })
  writeSpans(directory, f(3), { runId: 'older', time: 5 })
  const newest = summarizeTrace(findTracedRun([directory])!)!
  expect(newest).toMatchObject({ runId: RUN, attempts: 2, mean: { step: 2 } })
  expect(summarizeTrace(findTracedRun([directory], 'older')!)!.mean.step).toBe(3)
  expect(findTracedRun([directory], 'none')).toBeUndefined()
  expect(findTracedRun([join(directory, 'nowhere')])).toBeUndefined()
})

describe('the clocks of several hosts', () => {
  const AHEAD = 123_456.5

  /** Messages take 0.3 ms there and 0.3 ms back at least. */
  function exchange(operations: 'messages' | 'collectives' | 'broadcasts'): void {
    const one: Span[] = []
    const two: Span[] = []
    for (let i = 0; i < 20; i++) {
      const [start, delay] = [10 * i, 0.3 + (i % 5)]
      if (operations === 'messages') {
        const there = { group, tag: 1, sequence: i }
        one.push({ ...there, rank: 0, kind: 'send', peer: 1, start, end: start })
        two.push({ ...there, rank: 1, kind: 'recv', peer: 0, start, end: start + delay })
        const back = { group, tag: 2, sequence: i }
        two.push({ ...back, rank: 1, kind: 'send', peer: 0, start: start + 5, end: start + 5 })
        one.push({ ...back, rank: 0, kind: 'recv', peer: 1, start, end: start + 5 + delay })
      } else {
        const both = {
          kind: 'collective',
          group,
          sequence: i,
          joint: Number(operations === 'collectives'),
        } as const
        one.push({ ...both, rank: 0, start, end: start + delay })
        two.push({ ...both, rank: 1, start, end: start + delay })
      }
    }
    writeSpans(directory, one, { rank: 0 })
    const shifted = two.map((span) => ({
      ...span,
      start: span.start + AHEAD,
      end: span.end + AHEAD,
    }))
    const clocks = { monotonic: AHEAD, time: 1_750_000_000_010 }
    writeSpans(directory, shifted, { rank: 1, node: 1, host: 'two', ...clocks })
  }

  it.each(['messages', 'collectives'] as const)('are aligned by %s', (operations) => {
    exchange(operations)
    const { files } = findTracedRun([directory])!
    const offsets = alignClocks(files)
    expect(offsets.get('one 0')).toBe(0)
    expect(offsets.get('two 1')).toBeCloseTo(-AHEAD, 6)
  })

  it('are aligned by the time of day if ranks have not waited for each other', () => {
    exchange('broadcasts')
    expect(alignClocks(findTracedRun([directory])!.files).get('two 1')).toBeCloseTo(10 - AHEAD, 6)
  })

  it('are converted to one time axis, with a process per host in the trace', () => {
    exchange('messages')
    const events = eventsOf()
    expect(
      events.filter(({ name }) => name === 'process_name').map(({ args }) => args['name']),
    ).toEqual(['one (host 0)', 'two (host 1)'])
    const begins = events.filter(({ ph }) => ph === 's')
    const ends = events.filter(({ ph }) => ph === 'f')
    expect(begins).toHaveLength(40)
    for (const begin of begins) {
      const end = ends.find(({ id }) => id === begin.id)!
      expect(end.pid).not.toBe(begin.pid)
      expect(end.ts).toBeGreaterThanOrEqual(begin.ts)
      expect(end.ts - begin.ts).toBeLessThan(5000)
    }
  })
})

interface Event {
  readonly name: string
  readonly cat?: string
  readonly ph: string
  readonly pid: number
  readonly tid: number
  readonly id?: number
  readonly ts: number
  readonly dur: number
  readonly args: Record<string, unknown>
}

function eventsOf(): Event[] {
  const path = join(directory, 'trace.json')
  writeChromeTrace(findTracedRun([directory])!.files, path)
  return (JSON.parse(readFileSync(path, 'utf8')) as { traceEvents: Event[] }).traceEvents
}

it('puts overlapping slices on separate tracks, and names the tracks', () => {
  const spans: Span[] = [
    { rank: 0, kind: 'step', start: 0, end: 100, step: 1 },
    { rank: 0, kind: 'wait', start: 10, end: 30, name: 'a' },
    { rank: 0, kind: 'wait', start: 20, end: 40, name: 'b' },
    { rank: 0, kind: 'F', start: 22, end: 25, microbatch: 3 },
    { rank: 0, kind: 'gc', start: 24, end: 26, name: 'minor' },
    { rank: 0, kind: 'recv', start: 0, end: 50, peer: 1, waited: 40 },
    { rank: 0, kind: 'recv', start: 0, end: 45, peer: 1, waited: 41 },
  ]
  write([spans])
  const events = eventsOf()
  const names = new Map(
    events.filter(({ name }) => name === 'thread_name').map(({ tid, args }) => [tid, args['name']]),
  )
  const slices = events.filter(({ ph }) => ph === 'X')
  expect(slices.map(({ name, tid, ts, dur }) => [name, names.get(tid), ts, dur])).toEqual([
    ['step 1', 'rank 0', 0, 100_000],
    ['recv', 'rank 0 engine', 40_000, 10_000],
    ['recv', 'rank 0 engine (2)', 41_000, 4000],
    ['wait: a', 'rank 0', 10_000, 20_000],
    ['wait: b', 'rank 0 (2)', 20_000, 20_000],
    ['F3', 'rank 0', 22_000, 3000],
    ['gc: minor', 'rank 0 garbage collection', 24_000, 2000],
  ])
})
