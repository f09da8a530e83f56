import { spawnSync } from 'node:child_process'
import { killLeftovers, Run } from '../../launcher/support/tsrun.ts'
import { fileURLToPath } from 'node:url'
import { needing } from '../../needs.ts'

afterEach(killLeftovers)

const program = `
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = text_string_to_metric_families(sys.stdin.read())
print(json.dumps({f.name: [f.type, [[s.name, s.labels, s.value] for s in f.samples]] for f in families}))`

const python = process.env['TSRUN_BENCH_PYTHON'] ?? 'python3'
const hasClient = spawnSync(python, ['-c', 'import prometheus_client']).status === 0

const { it: itHere } = needing(hasClient, 'prometheus_client')

itHere('Prometheus’ own Python client reads the metrics of a job', async () => {
  const cwd = fileURLToPath(new URL('../../fixtures/ranks/', import.meta.url))
  const run = new Run(['--nproc', '2', '--grace', '0.3', '--metrics', '0', 'progress.mjs'], {
    cwd,
  })
  await run.announced(2)
  const [, url] = /^tsrun: metrics: (http:\S+)$/m.exec(run.stderr) ?? []
  const input = await (await fetch(url!)).text()
  run.signal('SIGTERM')
  await run.finished
  const { stdout, stderr } = spawnSync(python, ['-c', program], { input, encoding: 'utf8' })
  expect(stderr).toBe('')
  const families = JSON.parse(stdout) as Record<string, [string, [string, object, number][]]>
  const types = Object.fromEntries(Object.entries(families).map(([name, [type]]) => [name, type]))
  expect(types).toMatchObject({
    tsrun_job_restarts: 'counter',
    tsrun_rank_steps: 'counter',
    tsrun_rank_sent_bytes: 'counter',
    tsrun_rank_cpu_seconds: 'counter',
    tsrun_rank_up: 'gauge',
    tsrun_rank_resident_memory_bytes: 'gauge',
  })
  const [, samples] = families['tsrun_rank_up']!
  expect(samples).toEqual([
    ['tsrun_rank_up', expect.objectContaining({ rank: '0' }), 1],
    ['tsrun_rank_up', expect.objectContaining({ rank: '1' }), 1],
  ])
})
