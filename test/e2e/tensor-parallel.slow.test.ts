import { jest } from '@jest/globals'
import { runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

interface RankReport {
  /** Largest difference of each parameter's gradient from that of one process. */
  readonly worst: Readonly<Record<string, number>>
  readonly lossError: number
  /** Of the norm of all gradients, as a share of it: that of squares, and the largest. */
  readonly normError: number
  /** Tensors that 18 steps have left behind. */
  readonly leaked: number
  /** Of the parameters' elements. */
  readonly share: number
  /** Of a step. */
  readonly collectives: number
}

async function train(nproc: number, form: string): Promise<RankReport[]> {
  const stdout = await runScript(nproc, 'test/fixtures/training/tensor-parallel.mjs', form)
  return (JSON.parse(stdout) as { ranks: RankReport[] }).ranks
}

describe('layers shared among ranks', () => {
  it.each([
    { form: 'column-row', size: 1, collectives: 0 },
    // two pairs: two sums forward; backward one, for nobody wants the gradient of the images
    { form: 'column-row', size: 2, collectives: 3 },
    { form: 'column-row', size: 4, collectives: 3 },
    { form: 'gather-replicated', size: 2, collectives: 4 + 3 },
    { form: 'gather-partial', size: 2, collectives: 4 + 3 },
    { form: 'gather-partial', size: 3, collectives: 4 + 3 },
    { form: 'row-replicated', size: 2, collectives: 4 + 3 },
  ])('train like one process: $form, $size ranks', async ({ form, size, collectives }) => {
    const ranks = await train(size, form)
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

  it('do not when the gradient of a gather is summed that is whole', async () => {
    for (const { worst } of await train(2, 'wrong')) {
      expect(worst['layers.0.weight']).toBeGreaterThan(1e-2)
    }
  })
})

describe('dense layers of tf.layers shared among ranks', () => {
  it.each([
    { kind: 'sgd', size: 1 },
    { kind: 'sgd', size: 2 },
    { kind: 'adam', size: 2 },
    { kind: 'sgd', size: 4 },
  ])('fit like one process: $kind, $size ranks', async ({ kind, size }) => {
    const stdout = await runScript(size, 'test/fixtures/training/dense-parallel.mjs', kind)
    const { ranks } = JSON.parse(stdout) as { ranks: (RankReport & { error: number })[] }
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
  it('trains both forms to the loss of one process', async () => {
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
