import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { reportsOf, runScript } from '../launcher/support/script.ts'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../../', import.meta.url))

interface Report {
  /** Largest difference of a weight from that of one process. */
  readonly error: number
  /** Whether all ranks have the same bits. */
  readonly equal: boolean
  /** By epoch. */
  readonly losses: readonly number[]
  readonly ranks: readonly { readonly leaked: number; readonly changed: boolean }[]
  readonly iterations: number
  readonly className: string
}

describe('fit of a tf.layers model with a DistributedOptimizer', () => {
  const layouts = [
    { kind: 'sgd', size: 1, name: 'SGD' },
    { kind: 'sgd', size: 2, name: 'SGD' },
    { kind: 'sgd', size: 4, name: 'SGD' },
    { kind: 'momentum', size: 2, name: 'Momentum' },
    { kind: 'adam', size: 2, name: 'Adam' },
  ]
  const others = ['2/sgd/some', '2/adam/checkpoint', '2/momentum/checkpoint']
  let reports: Map<string, Report>
  beforeAll(async () => {
    const directory = mkdtempSync(join(tmpdir(), 'tsrun-fit-'))
    try {
      const requests = [...layouts.map(({ kind, size }) => `${size}/${kind}`), ...others]
      reports = await reportsOf('layers-fit.mjs', requests, { DIRECTORY: directory })
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  it.each(layouts)('on $size ranks equals one process on whole batches: $kind', (layout) => {
    const { error, equal, losses, ranks, iterations, className } = reports.get(
      `${layout.size}/${layout.kind}`,
    )!
    expect(error).toBeLessThan(1e-5)
    expect(equal).toBe(true)
    expect(losses.at(-1)!).toBeLessThan(losses[0]!)
    const kept = { leaked: 0, changed: true }
    expect(ranks).toEqual(new Array(layout.size).fill(kept))
    expect([iterations, className]).toEqual([24, layout.name])
  })

  it('broadcasts a frozen layer from rank 0, and does not train it', () => {
    const { error, equal, ranks } = reports.get('2/sgd/some')!
    expect(ranks.map(({ changed }) => changed)).toEqual([false, false])
    expect(error).toBeLessThan(1e-5)
    expect(equal).toBe(true)
  })

  it.each(['adam', 'momentum'])(
    'resumes from a checkpoint of the model and the weights of an optimizer: %s',
    (kind) => {
      const { error, equal, iterations } = reports.get(`2/${kind}/checkpoint`)!
      expect(error).toBeLessThan(1e-5)
      expect(equal).toBe(true)
      expect(iterations).toBe(24)
    },
  )

  it('fails if one rank has used its optimizer before', async () => {
    const fixture = 'test/fixtures/training/layers-fit.mjs'
    const { code, stderr } = await tsrun(['--nproc', '2', fixture, '2/adam/used'], { cwd })
    expect(code).toBe(1)
    expect(stderr).toMatch(/inner is an optimizer that rank 1 has used without the others/)
  })

  it('fails if the ranks train different models', async () => {
    const fixture = 'test/fixtures/training/layers-fit.mjs'
    const { code, stderr } = await tsrun(['--nproc', '2', fixture, '2/sgd/other'], { cwd })
    expect(code).toBe(1)
    expect(stderr).toMatch(
      /Rank 1 has different parameters from rank 0: number 0 is .*\[6, 9\], not/,
    )
    expect(stderr).toContain('ERR_TSR_REPLICA')
  })

  it('checks before the first step that ranks have the same examples, batches and epochs', async () => {
    const stdout = await runScript(2, 'test/fixtures/training/layers-sizes.mjs')
    const refusal = (has: string, wanted: string) =>
      'ERR_TSR_REPLICA after 0 steps: Rank 1 has different options from rank 0: ' +
      `${has} in fit, not ${wanted} in fit.`
    const expected = [
      refusal('200 examples', '201 examples'),
      refusal('201 examples', '200 examples'),
      refusal('8 batchSize', '4 batchSize'),
      refusal('2 epochs', '3 epochs'),
      refusal('1 batches', '2 batches'),
      'done',
    ].map((text) => expect.stringContaining(text) as string)
    expect(JSON.parse(stdout)).toEqual([expected, expected])
  })

  it('stops early on all ranks at the same step, by the mean of their metrics', async () => {
    type Logs = Record<string, number>
    const stdout = await runScript(2, 'test/fixtures/training/layers-early-stop.mjs')
    const [first, second] = JSON.parse(stdout) as {
      epochs: number
      history: Record<string, number[]>
      own: Logs[]
    }[]
    expect(second!.epochs).toBe(first!.epochs)
    expect(second!.history).toEqual(first!.history)
    expect(Object.keys(first!.history).sort()).toEqual(['loss', 'mae', 'val_loss', 'val_mae'])
    for (const [name, values] of Object.entries(first!.history)) {
      for (const [epoch, value] of values.entries()) {
        const [mine, others] = [first!.own[epoch]![name]!, second!.own[epoch]![name]!]
        expect(mine).not.toBe(others)
        expect(value).toBeCloseTo((mine + others) / 2, 10)
      }
    }
  })
})

describe('mnist-fit.ts', () => {
  it('is as accurate with two ranks as with one, and all ranks have the same weights', async () => {
    for (const nproc of [1, 2]) {
      const stdout = await runScript(nproc, 'examples/mnist-fit.ts', '--images', '8192')
      const [, json] = /^result (\{.*\})$/m.exec(stdout.trimEnd().split('\n').at(-1)!)!
      const result = JSON.parse(json!) as Record<string, unknown>
      expect(result).toMatchObject({ ranks: nproc, equalWeights: true })
      expect(result['accuracy']).toBeGreaterThan(0.8)
    }
  })
})
