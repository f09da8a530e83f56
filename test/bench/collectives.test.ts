import {
  busFactor,
  countFor,
  operations,
  parseStep,
  plan,
  stepArgument,
} from '../../scripts/bench/collectives/plan.mjs'
import { formatRows } from '../../scripts/bench/collectives/report.mjs'
import { interleave, summarize } from '../../scripts/bench/collectives/rounds.mjs'

describe('bus bandwidth', () => {
  it('uses the factors of nccl-tests', () => {
    const factors = operations.map((op) => [op, busFactor(op, 4), busFactor(op, 2)])
    expect(factors).toEqual([
      ['allReduce', 1.5, 1],
      ['reduceScatter', 0.75, 0.5],
      ['allGather', 0.75, 0.5],
      ['broadcast', 1, 1],
      ['allToAll', 0.75, 0.5],
      ['sendRecv', 1, 1],
    ])
  })
})

describe('plan', () => {
  it('rounds the size of sliced buffers to equal parts', () => {
    expect(countFor('reduceScatter', 4096, 3)).toBe(1023)
    expect(countFor('allReduce', 4096, 3)).toBe(1024)
    expect(countFor('allGather', 4, 4)).toBe(4)
    expect(countFor('sendRecv', 1, 2)).toBe(1)
  })

  it('repeats small buffers more often than large ones', () => {
    const repeats = plan(['allReduce'], [4096, 2 ** 20, 2 ** 26], 2).map((step) => step.repeats)
    expect(repeats).toEqual(repeats.toSorted((a, b) => b - a))
    expect(repeats.at(-1)).toBeGreaterThan(2)
  })

  it('is unchanged after its transfer to the ranks', () => {
    for (const step of plan(operations, [4096, 2 ** 26], 4)) {
      expect(parseStep(stepArgument(step))).toEqual(step)
    }
  })
})

describe('rounds', () => {
  const ours = { system: 'tsrun', transport: 'tcp', engine: 'worker' }
  const peer = { system: 'torch', transport: 'gloo', engine: null }

  it('measure the systems alternately, and skip a failed system in later rounds', async () => {
    const order: string[] = []
    const failures: string[] = []
    const rounds = await interleave(
      [ours, peer],
      3,
      (system, round) => {
        order.push(`${system.system} ${round}`)
        const failed = system === peer && round === 2
        return failed ? Promise.reject(new Error('gone')) : Promise.resolve([])
      },
      (system) => failures.push(system.system),
    )
    expect(order).toEqual(['tsrun 1', 'torch 1', 'tsrun 2', 'torch 2', 'tsrun 3'])
    expect(failures).toEqual(['torch'])
    expect([...rounds.keys()]).toEqual([ours])
  })

  it('report the median of each percentile over all rounds, and both bandwidths', () => {
    const rounds = [
      [10, 20, 90],
      [30, 30, 30],
      [1000, 2000, 3000],
    ].map((us) => [{ op: 'allReduce', count: 1000, us }])
    expect(summarize(ours, 4, rounds)).toEqual([
      {
        op: 'allReduce',
        bytes: 4000,
        ranks: 4,
        transport: 'tcp',
        engine: 'worker',
        system: 'tsrun',
        p50Us: 30,
        p99Us: 90,
        algbwGBs: 0.1333,
        busbwGBs: 0.2,
      },
    ])
  })

  it('compare our times with the times of each peer', () => {
    const times = (us: number) => [[{ op: 'allReduce', count: 1024, us: [us] }]]
    const rows = [...summarize(ours, 4, times(25)), ...summarize(peer, 4, times(100))]
    const [headings, , first, second] = formatRows(rows).split('\n')
    expect(headings).toMatch(/x torch gloo \|$/)
    expect(first).toMatch(/allReduce \| 4 KiB \| tsrun tcp worker \|.* 0\.25 \|$/)
    expect(second).toMatch(/torch gloo .*\| +\|$/)
  })
})
