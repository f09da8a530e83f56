import { findGrowth, tableOf } from '../../scripts/soak/judge.mjs'

interface Uses {
  readonly mib: number
  readonly threads?: number
  readonly descriptors?: number
  readonly maps?: number
}

const processes = ['launcher', 'rank'] as const

/** A launcher and ranks that restart every 25 s, for ten minutes; `uses` of the seconds since the start. */
function samplesOf(launcher: (at: number) => Uses, rank: (at: number) => Uses) {
  const usual = { threads: 11, descriptors: 40, maps: 400 }
  return Array.from({ length: 600 }, (_, at) => [
    { who: 'launcher' as const, at, age: at, ...usual, ...launcher(at) },
    { who: 'rank' as const, at, age: at % 25, ...usual, ...rank(at) },
  ]).flat()
}

/** Memory of a heap that is collected every 40 s. */
const sawtooth = (base: number) => (at: number) => ({ mib: base + (at % 40) / 2 })

describe('the growth check of a soak test', () => {
  it('ignores memory that rises and falls with garbage collection', () => {
    expect(findGrowth(samplesOf(sawtooth(70), sawtooth(430)), processes)).toEqual([])
  })

  it('finds growing memory of the launcher and of ranks', () => {
    const leak = (at: number) => ({ mib: sawtooth(70)(at).mib + at / 60 })
    expect(findGrowth(samplesOf(leak, sawtooth(430)), processes)).toEqual([
      expect.stringMatching(/^mib of a launcher grew from 7\d to 7\d|8\d$/),
    ])
    const ranks = (at: number) => ({ mib: sawtooth(430)(at).mib + at / 10 })
    expect(findGrowth(samplesOf(sawtooth(70), ranks), processes)).toEqual([
      expect.stringMatching(/^mib of a rank grew/),
    ])
  })

  it('finds growing numbers of descriptors and maps, and ignores one extra thread', () => {
    const growing = (at: number) => ({
      ...{ mib: 70, threads: 11 + Math.floor(at / 400) },
      ...{ descriptors: 40 + Math.floor(at / 50), maps: 400 + at },
    })
    const found = findGrowth(samplesOf(growing, sawtooth(430)), processes)
    expect(found.map((text) => text.split(' ')[0])).toEqual(['descriptors', 'maps'])
  })

  it('ignores as many additional maps as the caller allows', () => {
    const growing = (at: number) => ({ mib: 430, maps: 400 + at / 10 })
    const samples = samplesOf(sawtooth(70), growing)
    expect(findGrowth(samples, processes)).toEqual(['maps of a rank grew from 412 to 439'])
    expect(findGrowth(samples, processes, 20)).toHaveLength(1)
    expect(findGrowth(samples, processes, 30)).toEqual([])
  })

  it('fails if there are too few samples to compare', () => {
    const few = samplesOf(sawtooth(70), sawtooth(430)).filter(({ at }) => at < 80)
    expect(findGrowth(few, processes)).toHaveLength(2)
    expect(findGrowth(few, processes)[0]).toContain('too few to compare')
  })

  it('prints a table with a row for each minute and process', () => {
    const rows = tableOf(samplesOf(sawtooth(70), sawtooth(430)))
    expect(rows).toHaveLength(1 + 2 * 10)
    expect(rows[1]).toEqual(['1', 'launcher', '74', '11', '40', '400'])
  })
})
