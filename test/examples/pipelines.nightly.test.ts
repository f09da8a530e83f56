import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { resultIn, runScript } from '../launcher/support/script.ts'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../../', import.meta.url))

/** Runs an example; its result, and what rank 0 printed before. */
async function example(
  nproc: number,
  ...args: string[]
): Promise<[Record<string, unknown>, string]> {
  const [script, ...flags] = args
  const stdout = await runScript(nproc, `examples/${script!}`, ...flags)
  const lines = stdout.trimEnd().split('\n')
  // Lines of another rank may come after the result of rank 0.
  const at = lines.findLastIndex((line) => line.startsWith('result {'))
  const [, json] = /^result (\{.*\})$/.exec(lines.splice(at, 1)[0]!)!
  return [JSON.parse(json!) as Record<string, unknown>, lines.join('\n')]
}

describe('the examples 04 to 06', () => {
  it.each([
    ['04-naive.ts', 3 / 4, [1, 1, 1, 1]],
    ['05-gpipe.ts', 3 / 11, [8, 8, 8, 8]],
    ['06-1f1b.ts', 3 / 11, [4, 3, 2, 1]],
  ])('%s trains like a single process and shows its figures', async (script, ideal, peaks) => {
    const [result, shown] = await example(4, script)
    const keys = ['loss', 'maxDifference', 'idle', 'ideal', 'peaks', 'bytes', 'predicted']
    expect(Object.keys(result)).toEqual(keys)
    expect(result['maxDifference']).toBeLessThan(1e-5)
    expect(result['ideal']).toBeCloseTo(ideal, 3)
    expect(result['peaks']).toEqual(peaks)
    expect(result['idle']).toBeGreaterThan(0)
    expect(shown).toContain('rank 0 F0')
    expect(shown).toContain('Layers by rank: 0 to 2; 3 to 6; 7 to 10; 11 to 15')
    expect(shown.replace(/\s+/g, ' ')).toMatch(/, the simulator predicts \d+\.\d %\./)
    expect(shown.match(/^rank \d: computes \d+ %, CPU \d+ %, at most/gm)).toHaveLength(4)
  })

  it.each([
    ['05-gpipe.ts', 'gpipe', '27.3 %'],
    ['zero-bubble.ts', 'zb-h1', '11.1 %'],
  ])('%s only says what other numbers of stages promise', async (script, name, bubble) => {
    const job = ['--nproc', '2', '--log-format', 'raw', '--no-summary', `examples/${script}`]
    const { code, stdout, stderr } = await tsrun([...job, '--stages', '4'], { cwd })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout.replace(/\s+/g, ' ').trim()).toBe(
      `${name} with 4 stages and 8 micro-batches would ideally be idle for ${bubble} of the time, with a ` +
        'core for each rank. Start it with --nproc 4.',
    )
  })

  it.each(['04-naive.ts', 'interleaved.ts'])(
    '%s refuses more ranks than layers',
    async (script) => {
      const job = ['--nproc', '3', '--ranks', '0', `examples/${script}`, '--layers', '2']
      const run = await tsrun(job, { cwd })
      expect(run.code).toBe(2)
      expect(run.stderr).toContain('2 layers are too few for 3 ranks: start it with --nproc 2')
    },
  )

  it('refuse unknown flags', async () => {
    const run = await tsrun(['--nproc', '1', 'examples/05-gpipe.ts', '--epochs', '5'], { cwd })
    expect(run.code).toBe(2)
    expect(run.stderr).toContain("Unknown option '--epochs'")
    expect(run.stderr).toContain('--overlap')
  })

  it.each(['on', 'off'])('run with overlap %s', async (overlap) => {
    const [{ maxDifference, peaks }] = await example(2, '06-1f1b.ts', '--overlap', overlap)
    expect(maxDifference).toBeLessThan(1e-5)
    expect(peaks).toEqual([2, 1])
  })

  it('run in one process', async () => {
    const [result] = await example(1, '06-1f1b.ts')
    expect(result).toMatchObject({ ideal: 0, peaks: [1] })
  })
})

it('all lessons have the same losses, and the table has them and the memory of a rank', async () => {
  const flags = ['--steps', '4', '--batch', '128', '--width', '64']
  const shown: string[] = []
  const mebibytes: Record<string, number> = {}
  const runs = [
    ['01-monolith.ts', 1],
    ['02-manual-split.ts', 1],
    ['04-naive.ts', 2],
    ['05-gpipe.ts', 2],
    ['06-1f1b.ts', 2],
  ] as const
  for (const [script, nproc] of runs) {
    const [, text] = await example(nproc, script, ...flags)
    shown.push(/^loss of each step: (.*)$/m.exec(text)![1]!)
    if (script !== '06-1f1b.ts') continue
    const rows = text.match(/^ *0\d [a-z0-9]+ +\d +\d\.\d{5} +\d+\.\d .*$/gm)!
    const cells = rows.map((row) => row.trim().split(/ +/))
    for (const row of cells) mebibytes[row[1]!] = Number(row.at(-1))
    expect(cells.map((row) => row[1])).toEqual(['monolith', 'split', 'naive', 'gpipe', '1f1b'])
  }
  expect(new Set(shown).size).toBe(1)
  expect(shown[0]!.split(' ')).toHaveLength(4)
  // A stage is smaller than the network, and GPipe holds all micro-batches.
  const { monolith, split, naive, gpipe, '1f1b': oneForward } = mebibytes
  expect(split).toBeCloseTo(monolith!, 0)
  expect(naive).toBeLessThan(oneForward!)
  expect(oneForward).toBeLessThan(gpipe!)
  expect(gpipe).toBeLessThan(monolith!)
})

describe('the examples from scratch', () => {
  it.each([
    ['naive', '8', [1, 1]],
    ['gpipe', '8', [8, 8]],
    ['1f1b', '4', [2, 1]],
  ] as const)('have the losses of the lessons: %s, %s micro-batches', async (name, many, held) => {
    const lesson = await runScript(1, 'examples/01-monolith.ts')
    const scratch = await runScript(2, 'examples/from-scratch/schedule.ts', name, many)
    const lossesOf = (text: string): number[] =>
      [...text.matchAll(/^step \d+ {2}loss (\d+\.\d+)$/gm)].map(([, loss]) => Number(loss))
    const [wanted, losses] = [lesson, scratch].map(lossesOf)
    expect(losses).toHaveLength(8)
    for (const [step, loss] of losses!.entries()) {
      expect(Math.abs(loss - wanted![step]!) / wanted![step]!).toBeLessThan(1e-5)
    }
    const { losses: all, idles } = resultIn(scratch) as unknown as Record<string, number[]>
    expect(all!.map((loss) => loss.toFixed(6))).toEqual(losses!.map((loss) => loss.toFixed(6)))
    expect(idles).toHaveLength(2)
    const most = [...scratch.matchAll(/at most (\d+) micro-batches/g)].map(([, many]) =>
      Number(many),
    )
    expect(most).toEqual(held)
    // The first layer is as much work as two others.
    expect(scratch).toContain('rank 0: layers 0 to 6, ')
    expect(scratch).toMatch(/^all ranks: \d+\.\d % idle; \(S - 1\) \/ .* = \d+\.\d %$/m)
  })

  it('are at most 300 lines', () => {
    const folder = join(cwd, 'examples/from-scratch')
    const lines = readdirSync(folder).map(
      (file) => readFileSync(join(folder, file), 'utf8').split('\n').length - 1,
    )
    expect(lines).toHaveLength(3)
    expect(lines.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(300)
  })

  it('refuse an unknown schedule', async () => {
    const args = ['--nproc', '2', 'examples/from-scratch/schedule.ts', 'zigzag']
    const run = await tsrun(args, { cwd })
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('--schedule is "zigzag"; expected one of naive, gpipe, 1f1b')
  })

  it('refuse more ranks than layers', async () => {
    const job = ['--nproc', '17', '--ranks', '0', 'examples/from-scratch/schedule.ts']
    const run = await tsrun(job, { cwd })
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('start it with --nproc 16')
  })
})

describe('interleaved.ts and zero-bubble.ts', () => {
  it.each([
    [
      'interleaved.ts',
      2,
      [1 / 3, 1 / 5, 1 / 9, 1 / 5],
      [
        [2, 1],
        [2, 1.5],
        [2, 1.75],
        [2, 2],
      ],
    ],
    ['interleaved.ts', 1, [0, 0, 0, 0], [[1], [1], [1], [1]]],
    [
      'zero-bubble.ts',
      2,
      [1 / 9, 1 / 25],
      [
        [2, 1],
        [2, 2],
      ],
    ],
    ['zero-bubble.ts', 1, [0, 0], [[1], [1]]],
  ])(
    '%s on %i ranks has the same losses and a smaller predicted bubble',
    async (script, nproc, ideal, held) => {
      const [result, shown] = await example(nproc, script, '--steps', '2')
      const keys = ['bubble', 'predicted', 'ideal', 'stepMs', 'held']
      expect(Object.keys(result)).toEqual(['loss', 'maxDifference', ...keys])
      expect(result['maxDifference']).toBe(0)
      expect(result['held']).toEqual(held)
      const bubbles = result['ideal'] as number[]
      bubbles.forEach((bubble, at) => {
        expect(bubble).toBeCloseTo(ideal[at]!, 3)
      })
      const [plain, ...better] = bubbles
      for (const bubble of better) expect(bubble < plain! || nproc === 1).toBe(true)
      // what is measured hangs on how busy the machine is: that it is a share is all that is sure
      const measured = result['bubble'] as number[]
      expect(measured).toHaveLength(ideal.length)
      for (const bubble of measured) {
        expect(bubble).toBeGreaterThan(nproc === 1 ? -1e-9 : 0)
        expect(bubble).toBeLessThan(1)
      }
      expect(shown).toMatch(/^rank 0 F0/m)
      expect(shown).toContain('ideal bubble')
      const verdict = /It takes \d\.\d\d times as long: (faster|slower|no difference) on this/g
      const verdicts = shown.replace(/\s+/g, ' ').match(verdict)
      expect(verdicts).toHaveLength(ideal.length - 1)
    },
  )

  it('interleaved.ts holds more micro-batches on the first rank than on the last', async () => {
    const [result] = await example(2, 'interleaved.ts', '--steps', '2', '--microbatches', '8')
    expect(result['held']).toEqual([
      [2, 1],
      [2.5, 1.5],
      [2.25, 1.75],
      [8, 8],
    ])
  })

  it('interleaved.ts takes the number of stages', async () => {
    const few = ['--steps', '2', '--batch', '64', '--width', '32', '--layers', '6']
    const [result] = await example(2, 'interleaved.ts', '--stages', '6', ...few)
    const ideal = result['ideal'] as number[]
    expect(ideal.map((share) => share.toFixed(2))).toEqual(['0.33', '0.14', '0.14'])
  })
})

describe('pipeline.ts', () => {
  const quick =
    '--width 128 --epochs 1 --images 8000 --batch 100 --microbatches 4 --lr 0.003'.split(' ')
  /** Of a single process; every layout comes to the same. */
  let alone: number | undefined

  it.each([
    [1, 'naive'],
    [3, '1f1b'],
    [2, 'gpipe'],
  ])('is as accurate on %i ranks with %s as in a single process', async (nproc, schedule) => {
    const flags = ['--schedule', schedule, '--report', ...quick]
    const [result, shown] = await example(nproc, 'pipeline.ts', ...flags)
    expect(Object.keys(result)).toEqual(['accuracy', 'bubble', 'predictedBubble'])
    expect(result['accuracy']).toBeGreaterThan(0.8)
    alone ??= result['accuracy'] as number
    expect(Math.abs((result['accuracy'] as number) - alone)).toBeLessThan(0.01)
    expect(result['bubble']).toBeLessThan(1)
    expect(shown).toMatch(/epoch 1\/1 {2}test accuracy \d\d\.\d\d %/)
    expect(shown).toMatch(/^rank {2}layers {2}parameters/m)
    expect(shown).toMatch(/^Bubble .* measured, .* predicted/m)
    expect(shown).toMatch(/^computed by \w+ on .+, \d+ thread/m)
    for (let rank = 0; rank < nproc; rank++) expect(shown).toMatch(new RegExp(`^r${rank} .*F`, 'm'))
  })

  it('reads a schedule from a file, and refuses one for another number of ranks', async () => {
    const file = 'examples/schedules/last-first.csv'
    const small = '--width 128 --epochs 1 --images 2000 --batch 256 --lr 0.003'.split(' ')
    const flags = ['--schedule-file', file, ...small, '--report']
    const [result, shown] = await example(2, 'pipeline.ts', ...flags)
    expect(result['accuracy']).toBeGreaterThan(0.2)
    expect(shown).toMatch(/^rank 0 F3/m)
    const wrong = await tsrun(['--nproc', '3', 'examples/pipeline.ts', ...flags], { cwd })
    expect(wrong.code).not.toBe(0)
    expect(wrong.stderr).toContain('a list for each of the 3 ranks')
  })

  it('ends with its result, after at most 20 lines of at most 80 characters', async () => {
    const job = ['--nproc', '4', 'examples/pipeline.ts']
    const { code, stdout } = await tsrun([...job, '--epochs', '1', '--images', '2048'], { cwd })
    expect(code).toBe(0)
    const lines = stdout.trimEnd().split('\n')
    const trained = lines.findIndex((line) => line.includes('epoch 1/1  test accuracy'))
    expect(trained).toBeGreaterThan(-1)
    const after = lines.slice(trained + 1)
    expect(after.at(-1)).toMatch(/^\[rank 0\] result \{.*\}$/)
    expect(after.length).toBeLessThanOrEqual(20)
    expect(lines.filter((line) => line.length > 80)).toEqual([])
    const [, means, least] = /CPU +mean (.+) %, least (.+) %, by rank/.exec(stdout)!
    for (const shares of [means!, least!]) expect(shares).toMatch(/^\d+(, \d+){3}$/)
  })

  it('computes and sends as --device, --engine and --transport say, and shows its messages', async () => {
    const job = ['--device', 'cpu', '--engine', 'inline', '--transport', 'tcp', '--messages']
    const sizes = ['--images', '64', '--batch', '64', '--microbatches', '4', '--epochs', '1']
    const network = ['--layers', '4', '--width', '32']
    const [, shown] = await example(2, 'pipeline.ts', ...job, ...sizes, ...network)
    expect(shown).toMatch(/^computed by cpu on CPU, 1 thread$/m)
    // Four activations go forward, and four gradients back.
    for (const to of [0, 1]) {
      const sent = new RegExp(`^sending \\[16, 32\\] to rank ${to}$`, 'gm')
      expect(shown.match(sent)).toHaveLength(4)
    }
  })

  it('takes the number of stages where the schedule leaves it open', async () => {
    const small = ['--images', '512', '--epochs', '1', '--width', '32']
    const stages = ['--schedule', 'interleaved', '--stages', '2']
    const [, shown] = await example(2, 'pipeline.ts', ...small, ...stages, '--report')
    // The grid names the stage before an action only where a rank has several.
    expect(shown).toMatch(/^rank 0 F0 F1 /m)
    const job = ['--nproc', '2', 'examples/pipeline.ts', '--schedule', 'interleaved']
    const run = await tsrun([...job, '--stages', '5'], { cwd })
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('--stages is 5; expected a multiple of the 2 ranks')
  })

  it('refuses an invalid flag with one message and exit code 2', async () => {
    const flags = ['--schedule', 'zigzag']
    const run = await tsrun(['--nproc', '2', 'examples/pipeline.ts', ...flags], { cwd })
    expect(run.code).toBe(2)
    const errors = run.stderr.split('\n').filter((line) => line.startsWith('[rank 0] '))
    expect(errors[0]).toContain('--schedule is "zigzag"; expected one of naive, gpipe, 1f1b')
    expect(run.stderr).toMatch(/--microbatches +a whole number from 1 \(default 8\)/)
  })

  it('shows its flags once', async () => {
    const flags = ['--nproc', '2', 'examples/pipeline.ts', '--help']
    const { code, stdout, stderr } = await tsrun(flags, { cwd })
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout.match(/--microbatches +a whole number from 1 \(default 8\)/g)).toHaveLength(1)
  })
})
