import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { cleanEnvironment } from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)

const script = fileURLToPath(new URL('../../scripts/gpu-check.sh', import.meta.url))

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-gpu-check-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

/** Runs the check where `nvidia-smi` is this shell script and nothing is set up. */
function check(args: readonly string[], smi: string) {
  const program = join(folder, 'nvidia-smi')
  writeFileSync(program, `#!/bin/sh\n${smi}\n`)
  chmodSync(program, 0o755)
  const env = {
    ...cleanEnvironment(),
    PATH: `${folder}:${process.env['PATH'] ?? ''}`,
    TSRUN_HOME: folder,
  }
  const { status, stdout, stderr } = spawnSync('bash', [script, ...args], {
    env,
    encoding: 'utf8',
  })
  return { status, stdout, stderr }
}

const noGpu = 'echo "No devices were found"; exit 6'
const oneGpu = [
  'case "$1" in',
  '-L) echo "GPU 0: NVIDIA Played (UUID: GPU-1)";;',
  '--query-gpu=index*) echo "index, name"; echo "0, NVIDIA Played";;',
  '--query-gpu=utilization*) printf "37, 512\\n12, 4096\\n"; exec sleep 60;;',
  'esac',
].join('\n')

// test/docs runs the check on the CPU: docs/gpu.md shows it
describe('scripts/gpu-check.sh', () => {
  it('says in one sentence that there is no GPU, and ends with 3', () => {
    const { status, stdout, stderr } = check([], noGpu)
    expect({ status, stdout }).toEqual({ status: 3, stdout: '' })
    expect(stderr).toMatch(/^gpu-check: there is no NVIDIA GPU here .*--cpu .*\n$/)
  })

  it('refuses what it does not know', () => {
    expect(check(['--gpu'], noGpu)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('unknown argument --gpu'),
    })
  })

  it('names the GPU and its use, and fails when the backend is not set up', () => {
    const { status, stdout } = check(['tensorflow'], oneGpu)
    expect(status).toBe(1)
    expect(stdout).toContain('0, NVIDIA Played\n')
    expect(stdout).toMatch(/^tensorflow +FAILED: .*tsrun setup tensorflow/m)
    expect(stdout).toMatch(/GPU busy up to 37 %, memory used up to 4096 MiB \(2 looks\)/)
    expect(stdout).toMatch(/gpu-check: 1 failed\n$/)
  })
})
