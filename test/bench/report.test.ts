import { summarize as summarizeSaves } from '../../scripts/bench/checkpoint/summary.mjs'
import { summarize as summarizeTexts } from '../../scripts/bench/generation/command.mjs'
import { compare } from '../../scripts/bench/nodes/summary.mjs'
import { drawCurves } from '../../scripts/bench/report/curves.mjs'
import { pictureOf, updatePage } from '../../scripts/bench/report/page.mjs'
import { summarize as summarizeSteps } from '../../scripts/bench/steps/report.mjs'
import { workloads } from '../../scripts/bench/steps/workloads.mjs'
import { summarize as summarizeTraining } from '../../scripts/bench/training/report.mjs'

const series = (name: string, isPeer: boolean, times: readonly number[]) => ({
  ...{ name, isPeer },
  points: times.map((us, i) => ({ bytes: 1024 * 4 ** i, us, busbw: 1000 / us })),
})

describe('curves', () => {
  it('have a line for each system in both panels, peers dashed, in light and dark', () => {
    const svg = drawCurves('allReduce', [
      series('tsrun tcp', false, [10, 20, 70]),
      series('torch gloo', true, [1000, 1100, 2000]),
    ])
    expect(svg.match(/<path class="line-0" d="M [\d. ]+ L /g)).toHaveLength(2)
    expect(svg.match(/<path class="line-1 peer" d="M [\d. ]+ L /g)).toHaveLength(2)
    expect(svg.match(/<circle /g)).toHaveLength(12)
    expect(svg).toContain('prefers-color-scheme: dark')
    expect(svg).not.toMatch(/NaN|undefined|Infinity/)
    expect(svg).toContain('>16 KiB<')
  })

  it('can be drawn with a single point', () => {
    const svg = drawCurves('barrier', [series('tsrun tcp', false, [10])])
    expect(svg).not.toMatch(/NaN|undefined|Infinity/)
  })
})

describe('the page', () => {
  const machine = { cores: 2, memoryGiB: 8, system: 'Linux', node: 'v20.20.2' }
  const report = (cpu: string, p50Us: number) => ({
    machine: { ...machine, cpu },
    versions: { tsrun: '0.1.0' },
    ...{ date: '2026-01-31', command: 'npm run bench -- report', ranks: 4, rounds: 3 },
    rows: [
      {
        ...{ op: 'allReduce' as const, bytes: 1024, ranks: 4 },
        ...{ system: 'tsrun' as const, transport: 'tcp' as const, engine: 'inline' as const },
        ...{ p50Us, p99Us: 2 * p50Us, algbwGBs: 1, busbwGBs: 1 },
      },
    ],
    skipped: [],
    sections: [{ title: 'Memory', text: `took ${p50Us}` }],
  })

  it('has a section for each CPU, and replaces only the section of the measured CPU', () => {
    const first = updatePage('', report('Intel(R) Xeon(R) @ 2.80GHz', 11))
    const second = updatePage(first, report('AMD EPYC', 22))
    const third = updatePage(second, report('Intel(R) Xeon(R) @ 2.80GHz', 33))
    const titles = third.match(/^## .*$/gm)
    expect(titles).toEqual(['## Method', '## AMD EPYC, 2 cores', '## Intel Xeon 2.80GHz, 2 cores'])
    expect(third.match(/took \d+/g)).toEqual(['took 22', 'took 33'])
    expect(third).toContain('](#intel-xeon-280ghz-2-cores)')
    expect(updatePage(third, report('AMD EPYC', 22))).toBe(third)
  })

  it('names its pictures after the CPU', () => {
    const { machine: xeon } = report('Intel(R) Xeon(R) @ 2.80GHz', 1)
    expect(pictureOf('allReduce', xeon)).toBe('bench-intel-xeon-280ghz-2-cores-all-reduce.svg')
  })
})

describe('the summary', () => {
  it('of steps has medians, and their ratio to torch', () => {
    const product = workloads.find(({ name }) => name === 'matmul-1024')!
    const round = (...ms: number[]) => ({
      device: 'CPU',
      threads: 1,
      samples: [{ workload: product.name, times: ms.map((time) => [time, 0, 0] as const) }],
    })
    const rounds = new Map([
      ['wasm', [round(80, 60, 1000), round(90), round(50)]],
      ['torch', [round(40)]],
    ])
    const [wasm, torch] = summarizeSteps(rounds, [product])
    expect(wasm).toMatchObject({ system: 'wasm', stepMs: 80, backwardMs: null, ratioToTorch: 2 })
    expect(wasm!['gflops']).toBeCloseTo((2 * 1024 ** 3) / 0.08 / 1e9, 1)
    expect(torch).toMatchObject({ system: 'torch', stepMs: 40, ratioToTorch: 1 })
  })

  it('of training has medians, ratios to torch, speedups and the exposed time of gradients', () => {
    const round = (system: string, ranks: number, ...steps: [mode: string, ...ms: number[]][]) => {
      const samples = steps.map(([mode, ...ms]) => ({ workload: 'net', mode, ms }))
      return { system, ranks, device: 'CPU', threads: 1, samples }
    }
    const rows = summarizeTraining([
      round('wasm', 1, ['alone', 40, 42, 900]),
      round('wasm', 2, ['ddp', 30], ['ddp-silent', 20]),
      round('wasm', 2, ['ddp', 26], ['ddp-silent', 22]),
      round('torch', 2, ['ddp', 56]),
    ])
    expect(rows).toMatchObject([
      { mode: 'alone', stepMs: 42, speedup: 1, ratioToTorch: null, exposedMs: null },
      { mode: 'ddp', stepMs: 28, speedup: 1.5, ratioToTorch: 0.5, exposedMs: 7 },
      { mode: 'ddp-silent', stepMs: 21, speedup: 2, ratioToTorch: null, exposedMs: null },
      { system: 'torch', mode: 'ddp', stepMs: 56, speedup: null, ratioToTorch: 1, exposedMs: null },
    ])
  })

  it('of steps has what limits a step, as a share of it, where the product was measured', () => {
    const [mlp, product, norm] = ['mlp-4x1024', 'matmul-1024', 'batchnorm-32'].map((name) =>
      workloads.find((each) => each.name === name)!,
    ) as [{ name: string }, { name: string }, { name: string }]
    const round = (...samples: [workload: { name: string }, ms: number][]) => ({
      ...{ device: 'CPU', threads: 1 },
      samples: samples.map(([{ name: workload }, ms]) => ({
        workload,
        times: [[ms, ms, ms] as const],
      })),
    })
    const rounds = new Map([
      ['wasm', [round([mlp, 20], [product, 20 / 3], [norm, 1])]],
      ['torch', [round([mlp, 10], [product, 10 / 3])]],
    ])
    const rows = summarizeSteps(rounds, [mlp, product, norm])
    // 128 rows: an eighth of a product each. 4 forward, 4 for the weights, 3 for the inputs.
    const limit = (11 / 8) * (10 / 3)
    expect(rows[0]!['share']).toBeCloseTo(limit / 60, 3)
    expect(rows[1]!['share']).toBeCloseTo(limit / 30, 3)
    expect(rows.at(-1)).toMatchObject({ workload: norm.name, gflops: null, share: null })
    expect(summarizeSteps(rounds, [mlp])[0]).toMatchObject({ share: null, ratioToTorch: 2 })
  })

  it('of saves has the stall of the call, and the time that longer steps add up to', () => {
    const save = (stallMs: number, during: number[]) => ({ stallMs, before: [9, 10, 12], during })
    const rounds = new Map([['wasm', [[save(4, [10, 15]), save(2, [11, 13]), save(1, [10, 10])]]]])
    expect(summarizeSaves(rounds, 2e8)).toEqual([
      {
        ...{ system: 'wasm', megabytes: 200, firstStallMs: 4, stallMs: 2, stepMs: 10, steps: 2 },
        ...{ excessMs: 4, excessPer100MB: 2, quietExcessMs: 0.667 },
      },
    ])
  })

  it('of generated texts has tokens in a second, and their ratio to torch', () => {
    const rounds = new Map<string, { cachedMs: number; wholeMs: number | null }[]>([
      ['wasm', [{ cachedMs: 50, wholeMs: 400 }]],
      ['torch', [{ cachedMs: 100, wholeMs: null }]],
    ])
    const sizes = { layers: 1, width: 8, heads: 1, vocabulary: 9, tokens: 100 }
    expect(summarizeTexts(rounds, sizes)).toMatchObject([
      { system: 'wasm', faster: 8, tokensPerSecond: 2000, ratioToTorch: 2 },
      { system: 'torch', wholeMs: null, faster: null, tokensPerSecond: 1000, ratioToTorch: 1 },
    ])
  })

  it('of versions of Node compares each case with the best version', () => {
    const row = (p50Us: number, busbwGBs: number, ranks = 2) => ({
      op: 'sum',
      ranks,
      p50Us,
      busbwGBs,
    })
    const rounds = new Map([
      ['v20', [[row(2, 8)], [row(4, 4)], [row(3, 6), row(7, 7, 4)]]],
      ['v24', [[row(6, 3)]]],
    ])
    expect(compare(rounds, 'p50Us')).toEqual([
      { name: 'sum 2 ranks', figures: { v20: 3, v24: 6 }, ratios: { v20: 1, v24: 2 } },
      { name: 'sum 4 ranks', figures: { v20: 7 }, ratios: { v20: 1 } },
    ])
    expect(compare(rounds, 'busbwGBs')[0]).toMatchObject({ ratios: { v20: 1, v24: 2 } })
    expect(compare(rounds, 'furlongs')).toEqual([])
  })
})
