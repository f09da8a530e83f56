import { jest } from '@jest/globals'
import { reportsOf } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

interface RankReport {
  /** Largest differences from one process, in units of 1e-6 + 1e-5 |value|. */
  readonly worst: Readonly<Record<'loss' | 'gradients' | 'parameters', number>>
  /** Tensors that 18 steps have left behind. */
  readonly leaked: number
  /** Of one step: how many collectives, and the bytes of their larger side. */
  readonly traffic: Readonly<Record<string, { readonly count: number; readonly bytes: number }>>
  /** Of the parameters' elements. */
  readonly share: number
  readonly names: readonly string[]
}

interface Report {
  readonly sizes: Readonly<Record<'batch' | 'block' | 'width' | 'layers', number>>
  readonly ranks: readonly RankReport[]
}

const FLOAT = 4

describe('a GPT that ranks share', () => {
  const layouts = [
    { form: 'heads', size: 1 },
    { form: 'heads', size: 2 },
    { form: 'heads-tied', size: 4 },
    { form: 'heads-uneven-tied', size: 4 },
    { form: 'sequence', size: 2 },
    { form: 'sequence-tied', size: 4 },
    { form: 'ring', size: 1 },
    { form: 'ring', size: 2 },
    { form: 'ring-tied', size: 4 },
  ]
  let reports: Map<string, Report>
  beforeAll(async () => {
    const requests = layouts.map(({ form, size }) => `${size}/${form}`)
    reports = await reportsOf('gpt-parallel.mjs', requests)
  })

  it.each(layouts)('trains like one process: $form, $size ranks', ({ form, size }) => {
    const { ranks, sizes } = reports.get(`${size}/${form}`)!
    expect(ranks).toHaveLength(size)
    const { batch, block, width, layers } = sizes
    const rows = batch * block
    const activation = rows * width * FLOAT
    // and how many of the scores each rank has
    const scores = (3 * rows + size) * FLOAT
    // of each block two, each way; of the embedding one forward, of the head one backward
    const edges = 4 * layers + 2
    for (const { worst, leaked, traffic, share } of ranks) {
      for (const error of Object.values(worst)) expect(error).toBeLessThan(1)
      expect(leaked).toBe(0)
      if (size === 1) continue
      if (form.startsWith('ring')) {
        // keys and values twice and their gradients once; each message has two tensors
        const messages = layers * 3 * (size - 1)
        expect(traffic).toEqual({
          send: { count: messages, bytes: (messages * 2 * activation) / size },
        })
        expect(share).toBe(1)
        continue
      }
      // positions, norms and biases of rows are everywhere
      expect(share).toBeLessThan(1 / size + 0.06)
      if (form.startsWith('heads')) {
        expect(traffic).toEqual({
          allReduce: { count: edges + 2, bytes: edges * activation + scores },
        })
        continue
      }
      // every sum is a scatter and a gather: the same bytes in twice the operations; the gradients of
      // norms, biases and positions are summed one by one
      const norms = 2 * layers + 1
      const small = (2 * norms + 2 * layers + block) * width * FLOAT
      expect(traffic).toEqual({
        allGather: { count: edges, bytes: edges * activation },
        reduceScatter: { count: edges, bytes: edges * activation },
        allReduce: { count: 2 * norms + 2 * layers + 1 + 2, bytes: small + scores },
      })
    }
  })
})

describe('attention over a ring', () => {
  it('uses the same memory for any number of ranks', async () => {
    interface Memory {
      readonly peaks: unknown
      readonly left: unknown
    }
    const reports = await reportsOf<Memory>('ring-memory.mjs', ['2', '4'])
    const [two, four] = [...reports.values()]
    expect(four!.peaks).toEqual(two!.peaks)
    for (const { left } of [two!, four!]) expect(left).toEqual({ tensors: 0, arena: 0 })
  })
})

describe('the cross-entropy of scores that are split across ranks', () => {
  interface RankReport {
    readonly errors: readonly number[]
    /** The largest difference of values, gradients and tags from `crossEntropyWith`. */
    readonly labelled: number
    readonly refused: readonly unknown[]
    readonly right: number
  }
  const layouts = [
    { classes: 8, size: 1 },
    { classes: 8, size: 2 },
    { classes: 7, size: 3 },
  ]
  let reports: Map<string, RankReport[]>
  beforeAll(async () => {
    const requests = layouts.map(({ classes, size }) => `${size}/${classes}`)
    reports = await reportsOf('vocab-loss.mjs', requests)
  })

  it.each(layouts)('is right, and refuses bad labels: $classes classes, $size ranks', (given) => {
    const { classes, size } = given
    const ranks = reports.get(`${size}/${classes}`)!
    expect(ranks).toHaveLength(size)
    for (const { errors, labelled, refused, right } of ranks) {
      for (const error of errors) expect(error).toBeLessThan(1e-5)
      expect(labelled).toBeLessThan(1e-5)
      expect(right).toBe(5)
      expect(refused).toEqual(
        [classes, -100].map((label) => ({
          code: 'ERR_TSR_ARGUMENT',
          message: expect.stringMatching(
            new RegExp(`a label.*${String(label)}.*0 to ${String(classes - 1)}`),
          ) as string,
        })),
      )
    }
  })
})
