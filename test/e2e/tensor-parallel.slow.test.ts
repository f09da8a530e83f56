import { reportsOf, runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

interface RankReport {
  /** Largest difference of each parameter's gradient from that of one process. */
  readonly worst: Readonly<Record<string, number>>
  readonly lossError: number
  /** Of the norm of all gradients, as a share of it. */
  readonly normError: number
  /** Tensors that 18 steps have left behind. */
  readonly leaked: number
  /** Of the parameters' elements. */
  readonly share: number
  /** Of a step. */
  readonly collectives: number
}

describe('layers shared among ranks', () => {
  const layouts = [
    { form: 'column-row', size: 1, collectives: 0 },
    // Two pairs: two sums forward, one backward, because the gradient of the images is not needed.
    { form: 'column-row', size: 2, collectives: 3 },
    { form: 'column-row', size: 4, collectives: 3 },
    { form: 'gather-replicated', size: 2, collectives: 4 + 3 },
    { form: 'gather-partial', size: 2, collectives: 4 + 3 },
    { form: 'gather-partial', size: 3, collectives: 4 + 3 },
  ]
  let reports: Map<string, RankReport[]>
  beforeAll(async () => {
    const requests = layouts.map(({ form, size }) => `${size}/${form}`)
    reports = await reportsOf('tensor-parallel.mjs', [...requests, '2/wrong'])
  })

  it.each(layouts)('train as in one process: $form, $size ranks', ({ form, size, collectives }) => {
    const ranks = reports.get(`${size}/${form}`)!
    expect(ranks).toHaveLength(size)
    for (const { worst, lossError, normError, leaked, share, ...counted } of ranks) {
      expect(counted.collectives).toBe(collectives)
      expect(Object.keys(worst)).toHaveLength(8)
      for (const error of Object.values(worst)) expect(error).toBeLessThan(1e-6)
      expect(lossError).toBeLessThan(1e-5)
      expect(normError).toBeLessThan(1e-5)
      expect(leaked).toBe(0)
      expect(share).toBeLessThan(1 / size + 0.05)
    }
  })

  it('train wrongly if the gradient of a gather is summed although it is whole', () => {
    for (const { worst } of reports.get('2/wrong')!) {
      expect(worst['layers.0.weight']).toBeGreaterThan(1e-2)
    }
  })
})

describe('dense layers of tf.layers shared among ranks', () => {
  const layouts = [
    { kind: 'sgd', size: 1 },
    { kind: 'sgd', size: 2 },
    { kind: 'adam', size: 2 },
    { kind: 'sgd', size: 4 },
  ]
  let reports: Map<string, (RankReport & { error: number })[]>
  beforeAll(async () => {
    const requests = layouts.map(({ kind, size }) => `${size}/${kind}`)
    reports = await reportsOf('dense-parallel.mjs', requests)
  })

  it.each(layouts)('fit as in one process: $kind, $size ranks', ({ kind, size }) => {
    const ranks = reports.get(`${size}/${kind}`)!
    expect(ranks).toHaveLength(size)
    for (const { error, lossError, leaked, share } of ranks) {
      expect(error).toBeLessThan(1e-5)
      expect(lossError).toBeLessThan(1e-5)
      expect(leaked).toBe(0)
      expect(share).toBeLessThan(1 / size + 0.05)
    }
  })
})

describe('tensor-parallel.ts', () => {
  it('trains both forms to the same loss as one process', async () => {
    const stdout = await runScript(2, 'examples/tensor-parallel.ts', '--steps', '8')
    const [, json] = /^result (\{.*\})$/m.exec(stdout)!
    const result = JSON.parse(json!) as Record<string, number>
    // the steps that must agree, and the drift of the later ones
    expect(result['gatheredFirst']).toBeLessThan(1e-5)
    expect(result['pairedFirst']).toBeLessThan(1e-5)
    expect(result['gatheredError']).toBeLessThan(1e-4)
    expect(result['pairedError']).toBeLessThan(1e-4)
    expect(result['gatheredCollectives']).toBeGreaterThan(result['pairedCollectives']!)
  })
})
