import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SpanRecorder } from '@tsrun/distributed/record'
import { openSpanFile, sendSpansTo, type SpanFile } from '../internals/distributed/record.ts'
import { followSteps } from '../internals/observe.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

function open(rank: number, attempt = 0): SpanFile {
  const path = join(folder, `attempt-${attempt}.rank-${rank}.77.spans`)
  const place = { rank, worldSize: 2, node: 0, host: 'node0', pid: 77 }
  const clock = { monotonic: 0, time: 0 }
  const owner = { runId: 'run-1', restartCount: attempt, ...place, ...clock }
  return openSpanFile(path, owner, (error) => {
    throw error
  })
}

const recorders = [0, 1].map((rank) => new SpanRecorder({ rank }))

/** A step of a stage of a pipeline of two: two forward and two backward passes, and a bucket. */
function addStep(file: SpanFile, stage: number, step: number, start: number): void {
  sendSpansTo(file)
  const recorder = recorders[stage]!
  for (const microbatch of [0, 1]) {
    const at = start + 10 * (2 * microbatch + stage)
    recorder.record('F', at, at + 8, { stage, microbatch })
    recorder.record('B', at + 40, at + 48, { stage, microbatch })
  }
  const bucket = { group: 0, sequence: step, bytes: 1024, waited: 1, joint: 1 }
  recorder.record('collective', start + 90, start + 95, { name: `bucket ${step}`, ...bucket })
  recorder.record('step', start, start + 100, { step })
  sendSpansTo(undefined)
  file.flush()
}

it('a step tail shows the last step that all ranks have completed, measured and ideal', () => {
  const [zero, one] = [open(0), open(1)]
  const tail = followSteps(folder, 0)
  expect(tail([0, 1])).toBeUndefined()
  addStep(zero, 0, 1, 1000)
  expect(tail([0, 1])).toBeUndefined()
  addStep(zero, 0, 2, 1100)
  addStep(one, 1, 1, 1000)
  const view = tail([1, 0])!
  expect(view).toMatchObject({ step: 1, milliseconds: 100, idealMilliseconds: 48 })
  expect(view.ranks.map(({ rank }) => rank)).toEqual([0, 1])
  const [first, second] = view.ranks
  const computations = first!.bars.filter(([, , , microbatch]) => microbatch >= 0)
  expect(computations).toEqual([
    [0, 0, 8, 0],
    [0, 20, 28, 1],
    [1, 40, 48, 0],
    [1, 60, 68, 1],
  ])
  // Rank 1 begins when rank 0 has passed on the first micro-batch.
  expect(first!.ideal!.map(([, start]) => start)).toEqual([0, 8, 32, 40])
  expect(second!.ideal!.map(([, start]) => start)).toEqual([8, 16, 24, 32])
  expect(first!.shares.compute).toBeCloseTo(32)
  const total = Object.values(first!.shares).reduce((sum, share) => sum + share, 0)
  expect(total).toBeCloseTo(100)
  expect(first!.collectives).toEqual([
    { name: 'bucket 1', bytes: 1024, ready: 90, arrived: 90, end: 95 },
  ])
  // The same step is shown once.
  expect(tail([0, 1])).toBeUndefined()
  addStep(one, 1, 2, 1100)
  expect(tail([0, 1])).toMatchObject({ step: 2 })
})

it('a step tail reads only the end of long files, and the newest process of each rank', () => {
  const [zero, one] = [open(0), open(1)]
  for (let step = 1; step <= 12_000; step++) {
    addStep(zero, 0, step, 100 * step)
    addStep(one, 1, step, 100 * step)
  }
  const tail = followSteps(folder, 0)
  const view = tail([0, 1])!
  expect(view).toMatchObject({ step: 12_000, idealMilliseconds: 48 })
  expect(view.ranks.map(({ shares }) => Math.round(shares.compute))).toEqual([32, 32])
  const owner = {
    rank: 1,
    worldSize: 2,
    node: 0,
    host: 'node0',
    pid: 5,
    monotonic: 1_200_100,
    time: 9,
  }
  const path = join(folder, 'attempt-0.rank-1.5.spans')
  const next = openSpanFile(path, { runId: 'run-1', restartCount: 0, ...owner }, () => undefined)
  addStep(zero, 0, 12_001, 1_200_100)
  addStep(next, 1, 12_001, 1_200_100)
  expect(tail([0, 1])).toMatchObject({ step: 12_001 })
})

it('a step tail finds the last common step of ranks that write at different times', () => {
  const [zero, one] = [open(0), open(1)]
  for (let step = 1; step <= 40; step++) addStep(zero, 0, step, 100 * step)
  for (let step = 1; step <= 30; step++) addStep(one, 1, step, 100 * step)
  expect(followSteps(folder, 0)([0, 1])).toMatchObject({ step: 30 })
})

it('a step tail shows only the ranks of its attempt and its host', () => {
  const [before, now] = [open(0), open(0, 1)]
  addStep(before, 0, 9, 1000)
  const tail = followSteps(folder, 1)
  expect(tail([0])).toBeUndefined()
  addStep(now, 0, 3, 2000)
  addStep(open(1, 1), 1, 4, 2000)
  expect(tail([0])).toMatchObject({ step: 3, ranks: [{ rank: 0, ideal: undefined }] })
})

it('a step tail shows nothing until its files exist', () => {
  expect(followSteps(join(folder, 'missing'), 0)([0])).toBeUndefined()
})
