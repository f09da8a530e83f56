import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tsrun } from '../launcher/support/tsrun.ts'

const folder = mkdtempSync(join(tmpdir(), 'tsrun-closed-'))
afterAll(() => {
  rmSync(folder, { recursive: true })
})

const closes = async (args: readonly string[], native = 'on'): Promise<string> => {
  const { stdout, stderr } = await tsrun(['--nproc', '2', 'closes.mjs', ...args], {
    env: { TSRUN_NATIVE: native },
  })
  return stdout + stderr
}

it.each([
  ['descriptor 3', ['3', '3']],
  ['the descriptors that a daemon closes', ['3', '255']],
])('the report has the error of a rank that has closed %s', async (_, args) => {
  const output = await closes(args)
  // Node itself aborts at its end if pipes of its own are closed, too.
  expect(output).toMatch(/^first cause {2}rank 1 of 2 (died of an uncaught error|was killed)/m)
  expect(output).toMatch(/^error {8}Error: the reason$/m)
})

it.each(['on', 'off'])(
  'a file that reuses the descriptor of the control pipe is not written to (native bindings: %s)',
  async (native) => {
    const file = join(folder, native)
    const output = await closes(['3', '3', file], native)
    expect(output).toContain('[rank 1] descriptor 3\n')
    expect(readFileSync(file, 'utf8')).toBe('')
    expect(output).toContain('Error: the reason')
  },
)

it('a rank whose control pipe is closed prints its error itself', async () => {
  const output = await closes(['3', '3'], 'off')
  expect(output).toMatch(/^\[rank 1\] Error: the reason$/m)
})
