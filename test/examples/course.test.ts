import { readFileSync } from 'node:fs'
import { explainSpeed } from '../../examples/lib/compare-schedules.ts'
import { lessons } from '../../scripts/course/lessons.mjs'
import {
  exitCodeOf,
  judge,
  medianOf,
  readResult,
  recordIn,
  tableOf,
  type Run,
} from '../../scripts/course/verdict.mjs'

const machine = { cores: 2, ranks: 2 }

function run(title: string, figures: Run['repeats'][number] | undefined, ranks = 2): Run {
  return { title, ranks, seconds: 12.34, repeats: figures === undefined ? [] : [figures] }
}

/** Theory, measurement, bound and verdict. */
function shown(own: Run, others: readonly Run[] = [], cores = 2): (string | undefined)[] {
  const { theory, measured, bound, verdict } = judge(own, { ...machine, cores }, others)
  return [theory, measured, bound, verdict]
}

describe('npm run course', () => {
  it('runs the examples of examples/README.md, in their order', () => {
    const page = readFileSync(new URL('../../examples/README.md', import.meta.url), 'utf8')
    const listed = [...page.matchAll(/^\| `np\w+ [^`]*examples\/([\w/-]+\.ts)[^`]*` /gm)]
    const scripts = listed.map(([, script]) => script)
    expect([...new Set(lessons.map(({ script }) => script))]).toEqual([...new Set(scripts)])
  })

  it('links from each lesson to the page and the exercises of its row', () => {
    const page = readFileSync(new URL('../../examples/README.md', import.meta.url), 'utf8')
    const rows = page.matchAll(/^\| `np\w+ [^`]*(examples\/[\w/-]+\.ts)[^`]*` .*$/gm)
    for (const [row, script] of rows) {
      const head = readFileSync(new URL(`../../${script!}`, import.meta.url), 'utf8').split(
        '\nimport ',
        1,
      )[0]
      const read = /\(\.\.\/(docs\/[^)]+)\)/.exec(row)![1]!
      const exercises = /\((exercises\.md[^)]+)\)/.exec(row)?.[1]
      const more = exercises === undefined ? '' : `. Exercises: examples/${exercises}`
      expect({ script, head }).toEqual({
        script,
        head: expect.stringContaining(`\n// Read: ${read}${more}\n`) as string,
      })
    }
  })

  it('reads the last result of rank 0, with or without the prefix of tsrun', () => {
    expect(readResult('step 1\nresult {"loss":2.5}\n')).toEqual({ loss: 2.5 })
    const output = '[rank 0] result {"loss":1}\n[rank 0] result {"loss":2}\nrank  time\n'
    expect(readResult(output)).toEqual({ loss: 2 })
    expect(readResult('[rank 0] no result {"loss":1}\n')).toBeUndefined()
  })

  it('reads the losses of all steps, also from several lines', () => {
    const losses = '[rank 0] loss of each step: 2.5 2.25\n[rank 0]    2.125\n[rank 0] \n'
    const figures = readResult(`${losses}[rank 0] result {"loss":2.125,"idle":null}\n`)
    expect(figures).toEqual({ losses: [2.5, 2.25, 2.125], loss: 2.125, idle: NaN })
  })

  it('takes the median of each figure', () => {
    const repeats = [1, 30, 2].map((idle) => ({ idle, bytes: [idle, 2 * idle], isSame: true }))
    expect(medianOf(repeats)).toEqual({ idle: 2, bytes: [2, 4], isSame: true })
  })

  it('compares idle shares with the schedule, with as many cores as there are', () => {
    const scratch = run('scratch gpipe', { losses: [2.4, 2.3], idles: [0.1, 0.14] })
    expect(shown(scratch)).toEqual(['idle 11 %', '12 %', '8 points', 'met'])
    // One of two ranks always waits for the only core, or for the other.
    expect(shown(scratch, [], 1)).toEqual(['idle 50 %', '12 %', '8 points', 'MISSED'])
    const sizes = { bytes: [2 ** 20, 2 ** 19], predicted: 0.54 }
    const lesson = { losses: [2.3], loss: 2.3, idle: 0.2, ...sizes }
    expect(shown(run('06 1f1b', lesson))).toEqual([
      'idle 11 %',
      '20 %, 1.0 MiB',
      '8 points',
      'MISSED',
    ])
    expect(shown(run('06 1f1b', lesson, 4))[0]).toBe('idle 54 %')
    expect(shown(run('06 1f1b', lesson, 4), [], 4)[0]).toBe('idle 27 %')
  })

  it('judges the median of an idle share', () => {
    const repeats = [0.1, 0.4, 0.11].map((bubble) => ({ bubble, accuracy: 0.96 }))
    const verdict = shown({ ...run('pipeline', undefined), repeats })
    expect(verdict).toEqual(['idle 11 %', '11 %, 96 % right', '8 points', 'met'])
  })

  it('expects schedules to be faster where their bubbles are smaller', () => {
    const figures = { loss: 2.3, maxDifference: 0, ideal: [0.11, 0.06], predicted: [0.5, 0.5] }
    const compared = (own: number, ranks: number): (string | undefined)[] =>
      shown(run('interleaved', { ...figures, stepMs: [100, own] }, ranks))
    expect(compared(97, 2)).toEqual(['0.95 x', '0.97 x 1F1B', 'below 1', 'met'])
    expect(compared(102, 2)).toEqual(['0.95 x', '1.02 x 1F1B', 'below 1', 'MISSED'])
    expect(compared(102, 4)).toEqual(['1.00 x', '1.02 x 1F1B', undefined, ''])
  })

  it('compares with a lesson that ran before', () => {
    const alone = run('one replica', { imagesPerSecond: 1000, loss: 0.2 }, 1)
    const replicas = run('data-parallel', { imagesPerSecond: 1700, loss: 0.2 }, 4)
    expect(shown(replicas, [alone])).toEqual(['2.00 x', '1.70 x one rank', '1.50 x', 'met'])
    const slow = run('data-parallel', { imagesPerSecond: 1400, loss: 0.2 })
    expect(shown(slow, [alone]).at(-1)).toBe('MISSED')
    expect(shown(replicas)).toEqual([undefined, '1,700 images/s', undefined, ''])

    // Each replica has the loss of its rows; a pipeline has it on the last rank.
    const losses = [
      [4, 2],
      [6, 4],
    ]
    const data = run('lecture/data', { isSame: true, losses })
    const pipeline = run('lecture/pipeline', { losses: [[], [5, 3.03]] })
    expect(shown(pipeline, [data])).toEqual(['equal', 'within 1e-2', '1e-5', 'WRONG'])
  })

  it('compares the parameters of replicas and of sharded training', () => {
    const figures = { bytes: 2 ** 25, formula: 2 ** 25, process: 2 ** 26, lastLoss: 3 }
    const replicas = run('replicas', { ...figures, digest: 'a', backend: 'wasm' })
    const verdictOf = (digest: string, backend: string): string | undefined =>
      shown(run('fsdp', { ...figures, digest, backend }), [replicas]).at(-1)
    expect(verdictOf('a', 'wasm')).toBe('')
    expect(verdictOf('b', 'wasm')).toBe('WRONG')
    expect(verdictOf('b', 'tensorflow')).toBe('')
  })

  it('finds the one run of several in which the ranks differ', () => {
    const repeats = [true, false, true].map((isSame) => ({ isSame, losses: [[2]] }))
    const verdict = shown({ ...run('lecture/data', undefined), repeats })
    expect(verdict).toEqual(['equal', 'DIFFERENT', 'equal', 'WRONG'])
  })

  it('finds a loss that differs from that of the first lesson', () => {
    const first = run('scratch naive', { losses: [2.4, 2.3], idles: [0.5, 0.5] })
    const monolith = (loss: number): Run =>
      run('01 monolith', { losses: [2.4, loss], loss, msPerStep: 9 })
    expect(shown(monolith(2.30001), [first]).at(-1)).toBe('')
    expect(shown(monolith(2.3001), [first])).toEqual([
      undefined,
      'loss 4e-5 off',
      undefined,
      'WRONG',
    ])
  })

  it('fails for wrong numbers, and for a missed bound only with --check', () => {
    for (const isChecked of [false, true]) {
      expect(exitCodeOf(['met', '', 'met'], isChecked)).toBe(0)
      expect(exitCodeOf(['met', 'WRONG'], isChecked)).toBe(1)
      expect(exitCodeOf(['FAILED', ''], isChecked)).toBe(1)
      expect(exitCodeOf(['MISSED', 'met'], isChecked)).toBe(isChecked ? 1 : 0)
    }
  })

  it('does not accept a lesson whose losses it cannot read', () => {
    const lesson = run('05 gpipe', { loss: 2.3, idle: 0.11, bytes: [1] })
    expect(shown(lesson).at(-1)).toBe('WRONG')
  })

  it('has one table of at most 80 columns, with the lessons that failed', () => {
    const figures = { loss: 2.3, maxDifference: 0, ideal: [0.1, 0.06], stepMs: [90, 99] }
    const runs = [
      run('04 naive', undefined),
      run('05 gpipe', { losses: [2.3], loss: 2.3, idle: 0.123, bytes: [123 * 2 ** 20] }),
      run('interleaved', figures),
      run('03 ping-pong', { latencyUs: 12.34, bandwidthGBs: 12.34 }),
      run('benchmark', { allReduceBusbw: 12.345 }),
      run('gpt', { tokensPerSecond: 12_345, loss: 2 }),
      run('fsdp', { bytes: 2 ** 26, formula: 2 ** 26, process: 2 ** 27 }),
      run('continue', { difference: 1.25e-7, loss: 0.5 }),
      run('parameter-server', { ranks: 4, staleness: 2 }, 4),
    ]
    const table = tableOf(runs, machine)
    expect(table).toHaveLength(1 + runs.length)
    expect(Math.max(...table.map((line) => line.length))).toBeLessThanOrEqual(80)
    expect(table[1]).toMatch(/^04 naive +2 +FAILED$/)
    expect(table[3]).toMatch(/^interleaved +2 +0\.96 x +1\.10 x 1F1B +below 1 +MISSED +2\.3000$/)
  })
})

it('records the table in a page, as often as it is run', () => {
  const page = 'before\n\n<!-- recorded -->\n\n<!-- end of the record -->\n\nafter\n'
  const ping = run('03 ping-pong', { latencyUs: 12.34, bandwidthGBs: 12.34 })
  const once = recordIn(page, 'On one machine:', [ping], machine)
  expect(once.split('\n')).toEqual([
    'before',
    '',
    '<!-- recorded -->',
    '',
    'On one machine:',
    '',
    '| lesson       | ranks | theory | measured         | bound | verdict | loss |',
    '| ------------ | ----- | ------ | ---------------- | ----- | ------- | ---- |',
    '| 03 ping-pong | 2     |        | 12.3 us, 12 GB/s |       |         |      |',
    '',
    '<!-- end of the record -->',
    '',
    'after',
    '',
  ])
  expect(recordIn(once, 'On one machine:', [ping], machine)).toBe(once)
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
