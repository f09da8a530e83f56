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
})
