import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { blocksOf } from '../docs/markdown.ts'
import { root, runShell, type Outcome } from '../docs/run.ts'

const page = 'docs/platforms.md'
const { text: documented } = blocksOf(page, readFileSync(join(root, page), 'utf8')).find(
  ({ text }) => text.includes('--permission'),
)!

/** What the page says about the flags of older versions of Node. */
const older = { '--permission': '--experimental-permission', '--allow-net': '' }

/** Runs the command of the page without some flags. */
async function run(...without: readonly string[]): Promise<Outcome> {
  let script = documented
  for (const flag of without) script = script.replace(flag, '')
  for (const [flag, before] of Object.entries(older)) {
    if (!process.allowedNodeEnvironmentFlags.has(flag)) script = script.replace(flag, before)
  }
  return await runShell(script, root, 50_000)
}

describe("Node's permission model", () => {
  it('lets ranks share memory and save checkpoints with the documented flags', async () => {
    const { code, output } = await run()
    expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('step-00000008') })
    expect(output).not.toContain('WARN distributed')
  })

  it('lets ranks run without native code and /proc', async () => {
    const { code, output } = await run('--allow-addons', '--allow-fs-read=/proc')
    expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('step-00000008') })
    expect(output).toContain('no native sockets: the transport is node')
  })

  const needed = [
    ['--allow-worker', 'WorkerThreads'],
    ['--allow-net', 'Net'],
    ['--allow-fs-read=$PWD', 'FileSystemRead'],
  ].filter(([flag]) => process.allowedNodeEnvironmentFlags.has(flag!.split('=')[0]!))
  it.each(needed)('names the permission at once if %s is missing', async (flag, permission) => {
    const { code, output } = await run(flag)
    expect({ code, output }).toEqual({ code: 1, output: expect.stringContaining('first cause') })
    expect(output).toContain(`permission: '${permission}'`)
  })

  it('applies to the thread that writes large checkpoints', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-permissions-'))
    const path = JSON.stringify(join(folder, 'large.safetensors'))
    const script = `import { writeSafetensors } from '@tsrun/training'
      const large = { shape: [2 ** 20], values: new Float32Array(2 ** 20) }
      await writeSafetensors(${path}, new Map([['large', large]])).then(
        () => console.log('written'),
        (error) => console.log(error.code),
      )`
    const flag = process.allowedNodeEnvironmentFlags.has('--permission')
      ? '--permission'
      : '--experimental-permission'
    const write = async (...more: readonly string[]) => {
      const flags = [flag, '--allow-worker', '--allow-addons', `--allow-fs-read=${root}`, ...more]
      const args = [...flags, '--no-warnings', '--input-type=module', '-e', script]
      return (await promisify(execFile)(process.execPath, args, { cwd: root })).stdout.trim()
    }
    try {
      expect(await write()).toBe('ERR_ACCESS_DENIED')
      expect(await write(`--allow-fs-read=${folder}`, `--allow-fs-write=${folder}`)).toBe('written')
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
