import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { drawCurves } from '../../scripts/bench/report/curves.mjs'
import { bench } from './support/bench.ts'

jest.setTimeout(240_000)

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

  it('can be drawn of one point', () => {
    const svg = drawCurves('barrier', [series('tsrun tcp', false, [10])])
    expect(svg).not.toMatch(/NaN|undefined|Infinity/)
  })
})

it('writes a page and a picture an operation from one run, and says what is left out', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-report-'))
  try {
    const what = [
      '--ops',
      'allReduce,sendRecv',
      '--sizes',
      '4KiB,64KiB',
      '--engine',
      'worker',
      '--also',
      'kernels',
    ]
    const { code, stderr } = await bench(
      ['report', '--ranks', '2', '--runs', '1', '--output', folder, ...what],
      { TSRUN_BENCH_PYTHON: '', PATH: '/nonexistent' },
    )
    expect({ code, stderr }).toEqual({ code: 0, stderr })
    const page = readFileSync(join(folder, 'benchmarks.md'), 'utf8')
    expect(page).toContain(`| Node.js | ${process.version}`)
    expect(page).toMatch(/\| memory +\| [\d.]+ GiB/)
    expect(page).toContain('Not measured because it is not installed: torch.')
    expect(page).toContain('Not measured because it is not installed: openmpi.')
    expect(page).toMatch(/\| bytes +\| tsrun shared-memory worker \| tsrun tcp worker \|/)
    expect(page).toMatch(/\n\| 64 KiB \| +[\d.]+ \| +[\d.]+ \|\n/)
    expect(page).toMatch(/## Reduction kernels\n[^]*\| 64 MiB \| +[\d.]+ \|/)
    expect(stderr).toContain('skipped: the comparison with a C program')
    const pictures = readdirSync(join(folder, 'images')).sort()
    expect(pictures).toEqual(['bench-all-reduce.svg', 'bench-send-recv.svg'])
    for (const picture of pictures) expect(page).toContain(`(images/${picture})`)
  } finally {
    rmSync(folder, { recursive: true })
  }
})
