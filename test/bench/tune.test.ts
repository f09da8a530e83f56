import { bestBySize, thresholdsOf, tuningTable } from '../../scripts/bench/tune/tuning-table.mjs'

const timing = (bytes: number, algorithm: string, us: number, transport = 'tcp') => ({
  ...{ op: 'allReduce', transport, bytes, algorithm, us },
})

describe('the best algorithm', () => {
  it('is the fastest for each size, and the others are listed as multiples of it', () => {
    const bests = bestBySize([
      timing(64, 'ring', 30),
      timing(64, 'recursive-doubling', 10),
      timing(256, 'ring', 10),
      timing(256, 'recursive-doubling', 20),
    ])
    expect(bests).toMatchObject([
      { bytes: 64, algorithm: 'recursive-doubling', others: [{ algorithm: 'ring', ratio: 3 }] },
      { bytes: 256, algorithm: 'ring', others: [{ algorithm: 'recursive-doubling', ratio: 2 }] },
    ])
  })

  it('stays the same as for the previous size unless another is clearly faster', () => {
    const bests = bestBySize([
      timing(64, 'ring', 90),
      timing(64, 'direct', 100),
      timing(256, 'ring', 100),
      timing(256, 'direct', 97),
      timing(1024, 'ring', 100),
      timing(1024, 'direct', 90),
    ])
    expect(bests.map(({ algorithm }) => algorithm)).toEqual(['ring', 'ring', 'direct'])
  })
})

describe('thresholds', () => {
  it('lie half-way between two sizes with different winners, the last without a limit', () => {
    const at = (bytes: number, algorithm: string) => ({ bytes, algorithm })
    const bests = [at(1024, 'bruck'), at(4096, 'bruck'), at(16384, 'ring'), at(65536, 'ring')]
    expect(thresholdsOf(bests)).toEqual([{ upTo: 8192, algorithm: 'bruck' }, { algorithm: 'ring' }])
    expect(thresholdsOf([at(1024, 'ring')])).toEqual([{ algorithm: 'ring' }])
  })

  it('are separate for sockets and shared memory', () => {
    const timings = [timing(64, 'ring', 1), timing(64, 'direct', 1, 'shared-memory')]
    expect(tuningTable(bestBySize(timings), {})).toEqual({
      version: 1,
      about: {},
      sockets: { allReduce: [{ algorithm: 'ring' }] },
      sharedMemory: { allReduce: [{ algorithm: 'direct' }] },
    })
  })
})
