import { jest } from '@jest/globals'
import { reportsOf, resultIn, runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

interface Trained {
  readonly firstLoss: number
  readonly lastLoss: number
  readonly bytes: number
  readonly process: number
  readonly collectives: number
  readonly digest: string
}

const replicasBySize = new Map<number, Promise<Trained>>()

/** The same as replicas, which is run once for each number of ranks. */
function trainReplicas(nproc: number): Promise<Trained> {
  const known = replicasBySize.get(nproc) ?? train(nproc, 0)
  replicasBySize.set(nproc, known)
  return known
}

/** Runs the example at a small size. */
async function train(nproc: number, zero: number): Promise<Trained> {
  const small = ['--layers', '4', '--width', '32', '--block', '16', '--lr', '0.003']
  const flags = ['--zero', String(zero), '--steps', '40', '--batch', String(2 * nproc), ...small]
  return resultIn(await runScript(nproc, 'examples/fsdp.ts', ...flags)) as unknown as Trained
}

describe('fsdp.ts', () => {
  it.each([
    { nproc: 1, zero: 3 },
    { nproc: 2, zero: 1 },
    { nproc: 2, zero: 2 },
    { nproc: 3, zero: 3 },
  ])(
    'learns, and ends with the same bits as replicas: $nproc ranks, stage $zero',
    async ({ nproc, zero }) => {
      const replicas = await trainReplicas(nproc)
      const sharded = await train(nproc, zero)
      expect(sharded.digest).toMatch(/^[0-9a-f]{12}$/)
      expect(sharded.digest).toBe(replicas.digest)
      expect(sharded.lastLoss).toBeLessThan(sharded.firstLoss - 0.5)
      expect(sharded.process).toBeGreaterThan(0)
      expect(sharded.bytes < replicas.bytes).toBe(nproc > 1)
      // Stage 3 has a unit for each embedding, block, norm and head; the others have one bucket.
      expect(sharded.collectives).toBe(zero === 3 ? 3 * 8 : 2)
    },
  )
})

interface RankReport {
  /** The most bytes of tensors and arena together. */
  readonly peak: number
  /** What `memory` says of parameters and gradients. */
  readonly ledger: number
  readonly formula: number
  /** Numbers of the model. */
  readonly parameters: number
  /** Bytes after all is disposed. */
  readonly left: number
}

describe('the state of a rank', () => {
  const layouts = [
    { stage: 1, nproc: 2 },
    { stage: 2, nproc: 2 },
    { stage: 3, nproc: 2 },
    { stage: 1, nproc: 4 },
    { stage: 2, nproc: 4 },
    { stage: 3, nproc: 4 },
  ]
  let reports: Map<string, RankReport[]>
  beforeAll(async () => {
    const requests = layouts.map(({ stage, nproc }) => `${nproc}/${stage}`)
    reports = await reportsOf('sharded-memory.mjs', requests)
  })

  it.each(layouts)('takes the predicted memory: stage $stage, $nproc ranks', (layout) => {
    const { stage, nproc } = layout
    const ranks = reports.get(`${nproc}/${stage}`)!
    expect(ranks).toHaveLength(nproc)
    for (const { peak, ledger, formula, parameters, left } of ranks) {
      expect(peak / formula).toBeLessThan(1.1)
      expect(peak / formula).toBeGreaterThan(0.98)
      // the moments of Adam are the optimizer's
      const moments = (8 * parameters) / nproc
      expect(left).toBe(moments)
      expect(ledger).toBeLessThanOrEqual(peak - moments)
      expect(ledger).toBeGreaterThan(0.9 * (peak - moments))
    }
  })
})

interface MeshReport {
  /** Largest difference from one process, as a share of what rounding may make. */
  readonly worst: Readonly<Record<'loss' | 'norm' | 'parameters', number>>
  /** Tensors that 18 steps have left behind. */
  readonly leaked: number
}

describe('a tensor-parallel GPT with its state sharded among replicas', () => {
  const layouts = [
    { stage: 1, dp: 2, tp: 2 },
    { stage: 2, dp: 4, tp: 1 },
    { stage: 3, dp: 2, tp: 2 },
  ]
  const requestOf = ({ stage, dp, tp }: (typeof layouts)[number]) => `${dp * tp}/${stage}/${dp}`
  let reports: Map<string, MeshReport[]>
  beforeAll(async () => {
    reports = await reportsOf('tensor-sharded.mjs', layouts.map(requestOf))
  })

  it.each(layouts)('trains like one process: stage $stage, dp $dp, tp $tp', (layout) => {
    const { dp, tp } = layout
    const ranks = reports.get(requestOf(layout))!
    expect(ranks).toHaveLength(dp * tp)
    for (const { worst, leaked } of ranks) {
      expect(Math.max(worst.loss, worst.norm, worst.parameters)).toBeLessThan(1)
      expect(leaked).toBe(0)
    }
  })
})
