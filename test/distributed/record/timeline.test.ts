import { drawTimeline, type Span } from '@tsrun/distributed/record'

const span = (
  rank: number,
  kind: Span['kind'],
  start: number,
  end: number,
  microbatch?: number,
): Span => ({
  rank,
  kind,
  start,
  end,
  microbatch,
})

describe('drawTimeline', () => {
  it('draws the spans of all ranks on one axis', () => {
    const spans = [
      span(0, 'F', 100, 104, 0),
      span(0, 'F', 104, 108, 1),
      span(0, 'wait', 108, 112),
      span(0, 'B', 112, 118, 0),
      span(0, 'send', 100, 118),
      span(0, 'optimizer', 118, 120),
      span(1, 'wait', 100, 104),
      span(1, 'F', 104, 105, 0),
      span(1, 'B', 106, 112, 0),
    ]
    const legend = [
      'F3-- forward of micro-batch 3   B3== backward   o optimizer',
      '. waiting for a message   blank: anything else',
    ]
    expect(drawTimeline(spans, { width: 63 }).split('\n').slice(-2)).toEqual(legend)
    const [r0, r1, axis] = drawTimeline(spans, { width: 63 }).split('\n')
    expect(r0).toBe('r0 F0----------F1----------............B0================oooooo')
    expect(r1).toBe('r1 ............F0-   B0================')
    expect(axis).toBe(`   0${'20.0 ms'.padStart(59)}`)
  })

  it('draws as much of each label as fits', () => {
    const spans = Array.from({ length: 8 }, (_, at) => span(at % 2, 'F', at, at + 1, at))
    expect(drawTimeline(spans, { width: 27 }).split('\n')[0]).toBe('r0 F0-   F2-   F4-   F6-')
    expect(drawTimeline(spans, { width: 11 }).split('\n').slice(0, 3)).toEqual([
      'r0 F F F F',
      'r1  F F F F',
      '   0 8.0 ms',
    ])
  })

  it('draws the shortest span with one character', () => {
    const spans = [span(0, 'F', 0, 1000, 0), span(10, 'B', 1000, 1000, 1)]
    const lines = drawTimeline(spans, { width: 14 }).split('\n')
    expect(lines.slice(0, 3)).toEqual(['r0  F0--------', 'r10          B', '    0' + '1000.0 ms'])
  })

  it('reports that there are no spans to draw', () => {
    expect(drawTimeline([])).toBe('(no spans)')
  })
})
