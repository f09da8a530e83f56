import { drawTimeline, type Span } from '@tsrun/telemetry'

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
    expect(drawTimeline(spans, { width: 20 })).toBe(
      ['r0 F0--F1--....B0====oo', 'r1 ....F B0====', '   0            20.0 ms'].join('\n'),
    )
  })

  it('gives the shortest span a character and stays within its width', () => {
    const lines = drawTimeline([span(0, 'F', 0, 1000, 0), span(10, 'B', 1000, 1000, 1)], {
      width: 10,
    })
    expect(lines.split('\n')).toEqual(['r0  F0--------', 'r10          B', '    0' + '1000.0 ms'])
  })

  it('says so when there is nothing to draw', () => {
    expect(drawTimeline([])).toBe('(no spans)')
  })
})
