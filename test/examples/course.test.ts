import { readFileSync } from 'node:fs'
import { explainSpeed } from '../../examples/lib/compare-schedules.ts'
import {
  lessons,
  readCourse,
  readResult,
  rowOf,
  tableOf,
  type Run,
} from '../../scripts/course/lessons.mjs'

const machine = { cores: 2, ranks: 2 }

function run(title: string, figures: Run['figures'], ranks = 2): Run {
  return { title, ranks, seconds: 12.34, figures }
}

/** The cells of theory, measurement and loss. */
function shown(own: Run, others: readonly Run[] = [], cores = 2): string[] {
  return rowOf(own, { ...machine, cores }, others).slice(2, 5)
}

describe('npm run course', () => {
  it('runs the examples of examples/README.md, in their order', () => {
    const page = readFileSync(new URL('../../examples/README.md', import.meta.url), 'utf8')
    const listed = [...page.matchAll(/^\| `([\w/-]+\.ts)` /gm)].map(([, script]) => script)
    expect([...new Set(lessons.map(({ script }) => script))]).toEqual(listed)
  })

  it('reads the last result of rank 0, with or without the prefix of tsrun', () => {
    expect(readResult('step 1\nresult {"loss":2.5}\n')).toEqual({ loss: 2.5 })
    const output = '[rank 0] result {"loss":1}\n[rank 0] result {"loss":2}\nrank  time\n'
    expect(readResult(output)).toEqual({ loss: 2 })
    expect(readResult('[rank 0] no result {"loss":1}\n')).toBeUndefined()
  })

  it('reads a lesson with the same number of ranks from the table of the course', () => {
    const kept = [2, 4].map((ranks) => ({ name: '04 naive', ranks, bytes: ranks }))
    const text = JSON.stringify({ lessons: kept })
    expect(readCourse(text, { title: '04 naive', ranks: 4 })).toMatchObject({ bytes: 4 })
    expect(readCourse(text, { title: '05 gpipe', ranks: 4 })).toEqual({})
  })

  it('shows the schedule beside the formula, with as many cores as there are', () => {
    const scratch = run('scratch gpipe', { losses: [2.4, 2.3], idles: [0.1, 0.14] })
    expect(shown(scratch)).toEqual(['idle 11 %', 'idle 12 %', '2.3000'])
    // One of two ranks always waits for the only core, or for the other.
    expect(shown(scratch, [], 1)[0]).toBe('idle 50 %')
    const lesson = { loss: 2.3, ideal: 0.27, idle: 0.55, bytes: 2 ** 20 }
    expect(shown(run('06 1f1b', lesson))).toEqual(['idle 27 %', 'idle 55 %, 1.0 MiB', '2.3000'])
    expect(shown(run('06 1f1b', { ...lesson, shared: 0.53 }))[0]).toBe('idle 53 %')
  })

  it('compares with a lesson that ran before', () => {
    const alone = run('one replica', { imagesPerSecond: 1000, loss: 0.2 }, 1)
    const replicas = run('data-parallel', { imagesPerSecond: 1700, loss: 0.2 }, 4)
    const compared = shown(replicas, [alone, replicas])
    expect(compared).toEqual(['2 x as fast', '1.70 x as fast', '0.2000'])
    expect(shown(replicas)).toEqual(['', '1,700 images/s', '0.2000'])

    // Each replica has the loss of its rows; a pipeline has it on the last rank.
    const data = run('lecture/data', {
      isSame: true,
      losses: [
        [4, 2],
        [6, 4],
      ],
    })
    const pipeline = run('lecture/pipeline', { losses: [[], [5, 3.03]] })
    expect(shown(pipeline, [data])).toEqual(['differs by 0', 'differs by 1e-2', '3.0300'])
  })

  it('has one table of at most 80 columns, with the lessons that failed', () => {
    const comparison = { loss: 2.3, ideal: [0.1, 0.06], bubble: [0.1, 0.07], stepMs: [90, 99] }
    const runs = [
      run('04 naive', undefined),
      run('interleaved', comparison),
      run('benchmark', { allReduceBusbw: 12.345 }),
      run('fsdp', { bytes: 2 ** 30, formula: 2 ** 30 }),
      run('continue', { difference: 1.25e-7, loss: 0.5 }),
      run('parameter-server', { ranks: 4, staleness: 2 }, 4),
    ]
    const table = tableOf(runs, machine)
    expect(table).toHaveLength(1 + runs.length)
    expect(Math.max(...table.map((line) => line.length))).toBeLessThanOrEqual(80)
    expect(table[1]).toMatch(/^04 naive +2 +FAILED +12\.3$/)
    expect(table[2]).toMatch(/^interleaved +2 +idle 6 % +idle 7 %, 1\.10 x 1F1B +2\.3000 +12\.3$/)
  })
})

describe('the examples that compare schedules', () => {
  const plain = { title: '1f1b', step: 100, predicted: 90, computed: 80, ideal: 0.1 }
  const own = { title: 'zb-h1', step: 110, predicted: 85.5, computed: 80, ideal: 0.04 }
  const machine = { ranks: 2, cores: 2 }

  it('say how long a schedule should take, and that it is faster', () => {
    const text = explainSpeed({ ...own, step: 97 }, plain, machine)
    expect(text).toBe(
      'zb-h1 should ideally take 0.94 times as long as 1f1b, with these passes and cores 0.95 times. ' +
        'It takes 0.97 times as long: faster on this machine.',
    )
  })

  it.each([98.1, 99.7, 101.9])('call %d ms as fast as 100 ms', (step) => {
    const text = explainSpeed({ ...own, step }, plain, machine)
    expect(text).toContain('as long: no difference on this machine. ')
  })

  it.each([
    ['messages', own, machine, 'messages, above all'],
    ['unequal passes', { ...own, predicted: 90, computed: 79 }, machine, 'all take the same time'],
    ['its passes', { ...own, predicted: 95, computed: 88 }, machine, '88.0 ms instead of 80.0 ms'],
    ['few cores', own, { ranks: 4, cores: 2 }, '4 ranks share 2 cores'],
    ['a single rank', own, { ranks: 1, cores: 2 }, 'A single rank has no bubble'],
  ])('say why a schedule is not faster: %s', (_, timing, where, why) => {
    const text = explainSpeed(timing, plain, where)
    expect(text).toContain('It takes 1.10 times as long: slower on this machine. ')
    expect(text).toContain(why)
  })
})
