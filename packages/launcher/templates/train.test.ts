import { ok } from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'

/** The loss after a few steps on this many ranks. */
async function train(ranks: number): Promise<number> {
  const env = { ...process.env, STEPS: '3' }
  const command = ['tsrun', '--nproc', String(ranks), 'train.ts']
  const { stdout } = await promisify(execFile)('npx', command, { cwd: import.meta.dirname, env })
  return Number(/loss ([\d.]+)/.exec(stdout)?.[1])
}

test('two ranks train as one does', async () => {
  const [alone, together] = [await train(1), await train(2)]
  ok(Math.abs(alone - together) < 1e-4 * alone, `the losses are ${alone} and ${together}`)
})
