import { execFile } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describeUtilisation, type Utilisation } from '../../examples/lib/utilisation.ts'

const cwd = fileURLToPath(new URL('../../', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'tsrun-utilisation-'))
const printed = join(folder, 'printed')

afterAll(() => {
  rmSync(folder, { recursive: true })
})

/** An nvidia-smi that shows three polls, and that it has done so. */
const nvidiaSmi = `#!/bin/sh
printf '90\\n30\\n60\\n'
touch ${printed}
exec sleep 60
`

/** A program that polls while it does what `steps` says, and what it prints. */
async function poll<Result>(steps: string): Promise<Result> {
  const program = `
    import { existsSync } from 'node:fs'
    import { setTimeout } from 'node:timers/promises'
    import { loadBackend } from '@tsrun/training'
    import { pollUtilisation } from './examples/lib/utilisation.ts'
    ${steps}`
  const args = ['--import', 'tsx', '--input-type=module', '--eval', program]
  const env = {
    ...process.env,
    PATH: `${folder}:${process.env['PATH']!}`,
    CUDA_VISIBLE_DEVICES: '0',
  }
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd, env })
  return JSON.parse(stdout) as Result
}

it('polls the CPU of a process whose backend computes there: mean and least', async () => {
  const { cpu, most, least } = await poll<{ cpu: Utilisation; most: number; least: number }>(`
    await loadBackend('cpu')
    const [before, usage] = [performance.now(), process.cpuUsage()]
    const used = (since) => Object.values(process.cpuUsage(since)).reduce((a, b) => a + b) / 1000
    const poll = pollUtilisation()
    const [begin, own] = [performance.now(), process.cpuUsage()]
    while (used(own) < 300) await setTimeout(0)
    const [busy, time] = [used(own), performance.now() - begin]
    const cpu = await poll.stop()
    const [most, least] = [used(usage) / time, busy / (performance.now() - before)]
    console.log(JSON.stringify({ cpu, most, least }))`)
  expect(cpu.of).toBe('CPU')
  expect(cpu.mean).toBeLessThanOrEqual(most)
  expect(cpu.mean).toBeGreaterThanOrEqual(least)
  expect(cpu.least).toBeLessThanOrEqual(cpu.mean)
})

it('polls the GPU that nvidia-smi shows until it is stopped', async () => {
  writeFileSync(join(folder, 'nvidia-smi'), nvidiaSmi)
  chmodSync(join(folder, 'nvidia-smi'), 0o755)
  const polled = await poll<Utilisation>(`
    const poll = pollUtilisation()
    while (!existsSync('${printed}')) await setTimeout(10)
    console.log(JSON.stringify(await poll.stop()))`)
  expect(polled).toEqual({ of: 'GPU', mean: expect.closeTo(0.6, 9) as number, least: 0.3 })
})

it('describes the utilisation of each rank in a line', () => {
  const of = 'CPU'
  const ranks = [
    { of, mean: 0.95, least: 0.9 },
    { of, mean: 0.5, least: 0.25 },
  ] as const
  expect(describeUtilisation(ranks)).toBe('CPU      mean 95, 50 %, least 90, 25 %, by rank')
})
