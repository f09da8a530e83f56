import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fixtures, killLeftovers, Run, tsrun, untilGone } from '../launcher/support/tsrun.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-platform-'))
})
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true })
})

// Node itself still is that of this platform, so this shows what the packages decide by `process.platform`.
describe.each(['darwin', 'win32'])('tsrun and ranks whose process.platform is %s', (platform) => {
  const env = {
    NODE_OPTIONS: `--import=file://${fixtures}as-platform.mjs`,
    AS_PLATFORM: platform,
  }

  it("sum over Node's sockets, with log files and a summary", async () => {
    const args = ['--nproc', '2', '--summary', '--log-dir', folder, 'sums.mjs']
    const { code, stdout, stderr } = await tsrun(args, { env })
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.any(String) })
    expect(stdout.match(/sums 3$/gm)).toHaveLength(2)
    const [run] = readdirSync(folder)
    const logs = await tsrun(['logs', join(folder, run!)], { env })
    expect(logs.stdout.match(/sums 3$/gm)).toHaveLength(2)
    // In the folder, because the null device of Windows is an ordinary file here.
    const facts = await tsrun(['env'], { env, cwd: folder })
    expect(facts.stdout).toContain(`platform ${platform}, only linux`)
  })

  it('save checkpoints on the backend wasm', async () => {
    const { code, stderr } = await tsrun(['--nproc', '2', 'checkpoints.mjs', folder], { env })
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.any(String) })
    expect(readdirSync(folder)).toEqual(expect.arrayContaining(['step-00000007', 'step-00000008']))
  })

  it('end with the exit code of a rank that fails, and name it', async () => {
    const { code, stderr } = await tsrun(['--nproc', '2', 'die.mjs', 'exit', '1'], { env })
    expect(code).toBe(3)
    expect(stderr).toMatch(/first cause +rank 1 of 2 called process\.exit\(3\)/)
  })

  it.each([
    ['SIGINT', 130],
    ['SIGKILL', null],
  ] as const)('leave no rank after %s to the launcher', async (signal, code) => {
    const run = new Run(['--nproc', '2', '--grace', '1', 'wait.mjs'], { env })
    const ranks = await run.announced(2)
    run.signal(signal)
    expect((await run.finished).code).toBe(code)
    await untilGone(
      ranks.map(({ pid }) => pid),
      5000,
    )
  })

  it.each(['ps', 'top', 'stacks'])('say that tsrun %s needs Linux', async (command) => {
    const { code, stderr } = await tsrun([command], { env })
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining('only Linux has') })
  })

  it('refuse --bind', async () => {
    const { code, stderr } = await tsrun(['--bind', 'core', 'hello.mjs'], { env })
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining('need Linux') })
  })
})
