import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

jest.setTimeout(400_000)
afterEach(killLeftovers)

const cwd = fileURLToPath(new URL('../../', import.meta.url))
const small = ['--layers', '2', '--width', '32', '--block', '32', '--sample', '40']

interface Outcome {
  readonly dp: number
  readonly validation: number
  readonly accuracy: number
  readonly tokensPerSecond: number
  readonly mfu: number
}

async function train(nproc: number, ...flags: string[]) {
  const job = ['--nproc', String(nproc), '--log-format', 'raw', '--no-summary']
  const run = await tsrun([...job, 'examples/gpt.ts', ...small, ...flags], { cwd })
  expect({ code: run.code, stderr: run.stderr }).toEqual({ code: 0, stderr: '' })
  const [, json] = /^result (\{.*\})$/m.exec(run.stdout)!
  return { ...(JSON.parse(json!) as Outcome), stdout: run.stdout }
}

describe('gpt.ts', () => {
  it('learns and generates text on one rank, even with an odd block length', async () => {
    const alone = await train(1, '--block', '31')
    expect(alone.validation).toBeLessThan(2.8)
    expect(alone.stdout).toContain('The whale ')
  })

  it('writes losses and generated text for TensorBoard from two pipeline stages', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-gpt-'))
    try {
      const flags = ['--pp', '2', '--steps', '3', '--sample', '20', '--log', folder]
      const { stdout } = await train(2, ...flags)
      const [name, ...others] = readdirSync(folder)
      expect(others).toEqual([])
      const events = readFileSync(join(folder, name!), 'latin1')
      for (const part of ['loss', 'evaluate/loss', 'sample', 'The whale ']) {
        expect(events).toContain(part)
      }
      expect(stdout).toContain('The whale ')
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('has the same loss on 4 ranks as in one process, in four layouts', async () => {
    const part = ['--steps', '5', '--batch', '4', '--block', '16', '--sample', '0']
    const alone = await train(1, ...part)
    for (const flags of [
      ['--pp', '2', '--zero', '1'],
      ['--dp', '2', '--tp', '2', '--zero', '3'],
      ['--cp', '2', '--tp', '2', '--between', 'sequence', '--zero', '2'],
      ['--pp', '2', '--tp', '2', '--between', 'sequence', '--schedule', 'zb-h1'],
    ]) {
      const four = await train(4, ...part, ...flags)
      const shared = ['--pp', '--tp', '--cp'].filter((flag) => flags.includes(flag)).length
      expect(four.dp).toBe(4 / 2 ** shared)
      expect(Math.abs(four.validation - alone.validation)).toBeLessThan(1e-4)
      expect(Math.abs(four.accuracy - alone.accuracy)).toBeLessThan(2e-3)
      expect(four.tokensPerSecond).toBeGreaterThan(0)
      expect(four.mfu).toBeGreaterThan(0)
    }
  })

  it('refuses a batch that does not divide by the replicas, and exits with 2', async () => {
    const job = ['--nproc', '2', '--log-format', 'raw', '--no-summary']
    const run = await tsrun([...job, 'examples/gpt.ts', '--batch', '7'], { cwd })
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('--batch 7 does not divide by 2 replicas')
  })
})
