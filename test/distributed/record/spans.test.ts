import { SpanRecorder, spanKinds, timeSpan, timeWait, factNames } from '@tsrun/distributed/record'

describe('SpanRecorder', () => {
  it('returns recorded spans with only the facts that were given', () => {
    const recorder = new SpanRecorder({ rank: 2 })
    recorder.record('F', 10.25, 12.5, { stage: 0, microbatch: 7, cpu: 1.5 })
    recorder.record('recv', 1, 4, { bytes: 2 ** 40, peer: 0, waited: 2.5 })
    recorder.record('optimizer', 5, 6)
    expect(recorder.spans()).toEqual([
      { rank: 2, kind: 'F', start: 10.25, end: 12.5, stage: 0, microbatch: 7, cpu: 1.5 },
      { rank: 2, kind: 'recv', start: 1, end: 4, bytes: 2 ** 40, peer: 0, waited: 2.5 },
      { rank: 2, kind: 'optimizer', start: 5, end: 6 },
    ])
  })

  it('keeps each fact under its own name', () => {
    const recorder = new SpanRecorder({ rank: 0 })
    const facts = {
      ...{ name: 'n', stage: 1, microbatch: 2, bytes: 3, peer: 4, tag: 5, waited: 6, noticed: 7 },
      ...{ group: 8, sequence: 9, joint: 1, cpu: 11, step: 12, loss: 13 },
    }
    recorder.record('recv', 0, 1, facts)
    expect(recorder.spans()).toEqual([{ rank: 0, kind: 'recv', start: 0, end: 1, ...facts }])
    expect(Object.keys(facts).slice(1)).toEqual(factNames)
  })

  it('keeps a fact that is any number', () => {
    const recorder = new SpanRecorder({ rank: 0 })
    recorder.record('step', 0, 1, { step: 1, loss: -1 })
    expect(recorder.spans()[0]).toMatchObject({ loss: -1 })
  })

  it('accepts every kind of span', () => {
    const recorder = new SpanRecorder({ rank: 0 })
    spanKinds.forEach((kind) => {
      recorder.record(kind, 0, 1)
    })
    expect(recorder.spans().map(({ kind }) => kind)).toEqual(spanKinds)
  })

  it('keeps only the newest spans, up to its capacity', () => {
    const recorder = new SpanRecorder({ rank: 0, capacity: 4 })
    for (let at = 0; at < 11; at++) recorder.record('F', at, at + 1)
    expect(recorder.recorded).toBe(11)
    expect(recorder.spans().map(({ start }) => start)).toEqual([7, 8, 9, 10])
    expect(recorder.spans(9).map(({ start }) => start)).toEqual([9, 10])
  })

  it('refuses a capacity of zero', () => {
    expect(() => new SpanRecorder({ rank: 0, capacity: 0 })).toThrow('capacity is 0')
  })

  it('keeps the names of its spans, and drops those of overwritten spans', () => {
    const recorder = new SpanRecorder({ rank: 0, capacity: 1 })
    recorder.record('pack', 0, 1, { name: 'layers.0.weight' })
    expect(recorder.spans()).toEqual([
      { rank: 0, kind: 'pack', name: 'layers.0.weight', start: 0, end: 1 },
    ])
    recorder.record('pack', 1, 2)
    expect(recorder.spans()).toEqual([{ rank: 0, kind: 'pack', start: 1, end: 2 }])
  })
})

describe('timeSpan', () => {
  it('records a call, and just makes it if there is no recorder', () => {
    const recorder = new SpanRecorder({ rank: 0 })
    expect(timeSpan(recorder, 'F', { microbatch: 3 }, () => 'output')).toBe('output')
    expect(recorder.spans()).toMatchObject([{ kind: 'F', microbatch: 3 }])
    expect(timeSpan(undefined, 'F', {}, () => 'output')).toBe('output')
  })
})

describe('timeWait', () => {
  it('records how long it waited, and just waits if there is no recorder', async () => {
    const recorder = new SpanRecorder({ rank: 0 })
    const waited = timeWait(recorder, { name: 'sends' }, () => Promise.resolve('sent'))
    expect(recorder.recorded).toBe(0)
    expect(await waited).toBe('sent')
    expect(recorder.spans()).toMatchObject([{ kind: 'wait', name: 'sends' }])
    expect(await timeWait(undefined, {}, () => Promise.resolve('sent'))).toBe('sent')
  })
})
