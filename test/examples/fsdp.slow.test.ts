import { readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { reportsOf, resultIn, runScript } from '../launcher/support/script.ts'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'
import { needing } from '../needs.ts'
import { tensorflow } from '../training/backend/support/tensorflow.ts'
import { makeFolder, removeFolders } from '../training/checkpoint/support/folder.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)
afterEach(removeFolders)

describe('fsdp.ts', () => {
  it.each([
    { nproc: 1, stage: '3' },
    { nproc: 2, stage: '1' },
    { nproc: 2, stage: '2' },
    { nproc: 3, stage: '3' },
  ])(
    'learns, and ends with the same bits as data parallel: $nproc ranks, stage $stage',
    async ({ nproc, stage }) => {
      const small = [
        '--layers',
        '4',
        '--width',
        '32',
        '--block',
        '16',
        '--batch',
        String(2 * nproc),
      ]
      const script = ['--stage', stage, '--steps', '40', ...small]
      const stdout = await runScript(nproc, 'examples/fsdp.ts', ...script)
      const { equal, firstLoss, lastLoss, bytes, dataParallel, collectives } = resultIn(stdout)
      expect(equal).toBe(true)
      expect(lastLoss).toBeLessThan(firstLoss! - 0.5)
      expect(bytes! < dataParallel!).toBe(nproc > 1)
      // Stage 3 has a unit for each embedding, block, norm and head; the others have one bucket.
      expect(collectives).toBe(Number(stage) === 3 ? 3 * 8 : 2)
    },
  )
})

const onTensorflow = needing(tensorflow !== undefined, 'TensorFlow (tsrun setup tensorflow)')
const checkout = fileURLToPath(new URL('../../', import.meta.url))

onTensorflow.it('fsdp.ts on tensorflow accepts rounding but detects a wrong step', async () => {
  const source = readFileSync(join(checkout, 'examples/fsdp.ts'), 'utf8')
  const folder = makeFolder()
  for (const name of ['examples/lib', 'node_modules']) {
    symlinkSync(join(checkout, name), join(folder, name.split('/').at(-1)!))
  }
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  for (const [rate, code] of [
    ['flags.lr', 0],
    ['flags.lr * (zero > 0 ? 1.01 : 1)', 1],
  ] as const) {
    const script = join(folder, 'fsdp.ts')
    writeFileSync(script, source.replace('learningRate: flags.lr', `learningRate: ${rate}`))
    const env = { ...tensorflow, TSRUN_BACKEND: 'tensorflow', CUDA_VISIBLE_DEVICES: '' }
    const ended = await tsrun(['--nproc', '2', script, '--steps', '5'], { cwd: folder, env })
    expect(ended).toMatchObject({ code })
    expect(ended.stdout).toMatch(
      code === 0 ? /bitwise identical|up to what rounding leads to/ : /DIFFER/,
    )
  }
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
