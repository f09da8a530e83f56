import type { Span } from '@tsrun/distributed/record'
import { middle, takeApart } from '../../scripts/bench/where/parts.mjs'
import { summarizeExchange, summarizeSteps } from '../../scripts/bench/where/summaries.mjs'
import { benchHere } from './support/bench.ts'

function span(kind: Span['kind'], start: number, end: number, facts: Partial<Span> = {}): Span {
  return { rank: 0, kind, start, end, ...facts }
}

/** The parts, without those that are zero, of a step from 0 to 100 on one rank. */
function partsOf(...spans: Span[]): Record<string, number> {
  const [{ parts }] = takeApart([step(...spans)]) as [ReturnType<typeof takeApart>[0]]
  return Object.fromEntries(Object.entries(parts).filter(([, ms]) => ms !== 0))
}

function step(...spans: Span[]) {
  return { rank: 0, window: { start: 0, end: 100 }, spans }
}

describe('a step divided into parts', () => {
  it('has a part for each kind of span, and counts other time as unexplained', () => {
    const spans = [span('F', 0, 30), span('B', 30, 80), span('optimizer', 85, 95)]
    expect(partsOf(...spans)).toEqual({ forward: 30, backward: 50, update: 10, unexplained: 10 })
  })

  it('counts both halves of a backward pass as backward', () => {
    const parts = partsOf(span('I', 0, 20), span('W', 20, 100))
    expect(parts).toEqual({ backward: 100 })
  })

  it('subtracts nested spans from their parents, at any depth', () => {
    const spans = [
      span('B', 0, 100),
      span('pack', 10, 20),
      span('call', 30, 50),
      span('alloc', 35, 40),
    ]
    expect(partsOf(...spans)).toEqual({ backward: 70, pack: 10, call: 15, alloc: 5 })
  })

  it('counts time once even if it was recorded twice', () => {
    expect(partsOf(span('F', 0, 100), span('F', 0, 100))).toEqual({ forward: 100 })
  })

  it('ignores time before and after the step', () => {
    expect(partsOf(span('F', -50, 40), span('B', 40, 500))).toEqual({ forward: 40, backward: 60 })
  })

  it('counts a collective as waiting until the slowest rank starts, then as transfer', () => {
    const collective = (start: number): Span =>
      span('collective', start, 80, { group: 0, sequence: 7, noticed: 5 })
    const other = (start: number): Span =>
      span('collective', start, 90, { group: 0, sequence: 8, noticed: 0 })
    const [fast, slow] = takeApart([
      step(span('F', 0, 20), collective(20), span('F', 85, 100)),
      step(span('F', 0, 60), collective(60), other(5), span('F', 85, 100)),
    ])
    expect(fast!.parts).toMatchObject({ forward: 35, waiting: 40, transfer: 20, wakeUp: 5 })
    expect(slow!.parts).toMatchObject({ forward: 75, waiting: 0, unexplained: 0 })
    expect(fast!.parts['unexplained']).toBe(0)
  })

  it('counts a collective during a computation as hidden', () => {
    const collective = span('collective', 10, 60, { group: 0, sequence: 0 })
    const [{ parts, hidden }] = takeApart([
      step(span('B', 0, 50), collective, span('F', 60, 100)),
    ]) as [ReturnType<typeof takeApart>[0]]
    expect(parts).toMatchObject({ backward: 50, transfer: 10, forward: 40, unexplained: 0 })
    expect(hidden).toBe(40)
  })

  it('splits a wait for a message when the peer arrives', () => {
    const spans = [
      span('recv', 0, 70, { waited: 50, noticed: 3 }),
      span('wait', 20, 73, { waited: 30 }),
      span('F', 0, 20),
      span('F', 73, 100),
    ]
    expect(partsOf(...spans)).toEqual({ forward: 47, waiting: 30, transfer: 20, wakeUp: 3 })
  })

  it('ignores a message for which no rank waits', () => {
    expect(partsOf(span('recv', 0, 100, { waited: 100 }))).toEqual({ unexplained: 100 })
  })

  it('counts the wait for the completion of sends as transfer', () => {
    const spans = [span('send', 0, 60, { waited: 10 }), span('wait', 0, 60), span('F', 60, 100)]
    expect(partsOf(...spans)).toEqual({ waiting: 10, transfer: 50, forward: 40 })
  })

  it('has parts that sum to the whole step', () => {
    const { parts, step: whole } = takeApart([
      step(span('F', 3, 31), span('wait', 25, 60), span('collective', 40, 90, { noticed: 4 })),
    ])[0]!
    const sum = Object.values(parts).reduce((total, ms) => total + ms, 0)
    expect(sum).toBeCloseTo(whole, 9)
  })
})

it('the mean of the middle half of samples has parts that sum to the whole', () => {
  const samples = [100, 1, 3, 2, 4, 5, 6, 0].map((whole) => ({ whole, part: 2 * whole }))
  expect(middle(samples, 'whole')).toEqual({ whole: 3.5, part: 7 })
  expect(middle([{ whole: 1 }], 'whole')).toEqual({ whole: 1 })
})

it('the figures of steps are means over all ranks', () => {
  const rank = (bytes: number) => ({ ...step(span('F', 0, 99)), toHost: bytes, toTensor: 8 })
  const what = { workload: 'w', layout: 'dp2', ranks: 2, backend: 'wasm' }
  expect(summarizeSteps(what, [[rank(4), rank(8)]])).toMatchObject({
    ...what,
    ...{ stepMs: 100, forwardMs: 99, backwardMs: 0, unexplained: 0.01, hiddenMs: 0 },
    ...{ toHostBytes: 6, toTensorBytes: 8 },
  })
})

describe('an all-reduce divided into parts', () => {
  const moments = (posted: number, called = 0) => ({
    ...{ called, returned: called + 0.01, posted, completed: 0.2, resumed: 0.21 },
  })

  it('covers the time from the call to the return', () => {
    const repeats = [[moments(0.02), moments(0.06, 0.04)]]
    const exchange = { bytes: 4096, repeats, startMs: 0.004, kernelMs: 0.03 }
    expect(summarizeExchange({ ranks: 2, engine: 'worker' }, exchange)).toEqual({
      ...{ size: '4 KiB', ranks: 2, engine: 'worker' },
      ...{ wholeUs: 190, argumentsUs: 6, handOverUs: 14, waitingUs: 20 },
      ...{ transferUs: 110, kernelUs: 30, returnUs: 10 },
    })
  })

  it('sums to the whole even if the operation ended before the last rank reported its start', () => {
    const late = { called: 0.3, returned: 0.31, posted: 0.3, completed: 0.3, resumed: 0.32 }
    const exchange = { bytes: 4, repeats: [[moments(0.02), late]], startMs: 0.02, kernelMs: 1 }
    const { wholeUs, size, ranks, engine, ...parts } = summarizeExchange(
      { ranks: 2, engine: 'inline' },
      exchange,
    )
    const sum = Object.values(parts).reduce((total: number, us) => total + (us as number), 0)
    expect(sum).toBeCloseTo(wholeUs as number, 6)
    expect([size, ranks, engine]).toEqual(['4 B', 2, 'inline'])
  })
})

it('bench where refuses unknown layouts and other values', async () => {
  const wrong = async (...args: string[]) => (await benchHere(['where', ...args])).stderr
  expect(await wrong('--layouts', 'dp3')).toContain('--layouts: unknown "dp3"; did you mean dp2?')
  expect(await wrong('--parts', '')).toContain('--parts')
  expect(await wrong('--sizes', '5B')).toContain('--sizes: float32, up to 512MiB')
  expect(await wrong('--engine', 'worker,inline')).toContain('take one name')
})
