import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { cleanEnvironment } from '../launcher/support/tsrun.ts'

jest.setTimeout(300_000)

const script = fileURLToPath(new URL('../../scripts/gpu-check.sh', import.meta.url))
const measure = fileURLToPath(new URL('../../scripts/gpu-measure.mjs', import.meta.url))

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
const gpuCalled = (name: string) =>
  [
    'case "$1" in',
    `-L) echo "GPU 0: ${name} (UUID: GPU-1)";;`,
    `--query-gpu=index*) echo "index, name"; echo "0, ${name}";;`,
    `--query-gpu=name) echo "${name}";;`,
    '--query-gpu=utilization*) printf "37, 512\\n12, 4096\\n"; exec sleep 60;;',
    'esac',
  ].join('\n')
const oneGpu = gpuCalled('NVIDIA Played')

// test/docs runs the check on the CPU: docs/gpu.md shows it
describe('scripts/gpu-check.sh', () => {
  it('says in one sentence that there is no GPU, and exits with code 3', () => {
    const { status, stdout, stderr } = check([], noGpu)
    expect({ status, stdout }).toEqual({ status: 3, stdout: '' })
    expect(stderr).toMatch(/^gpu-check: there is no NVIDIA GPU here .*--cpu .*\n$/)
  })

  it('shows its flags', () => {
    const { status, stdout } = check(['--help'], noGpu)
    expect(status).toBe(0)
    expect(stdout).toMatch(
      /^Checks that tensors .*--sizes.*The exit code is 0 if all checks pass.*\n$/s,
    )
    expect(stdout).not.toContain('set -uo')
  })

  it('refuses unknown flags', () => {
    expect(check(['--gpu'], noGpu)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('unknown argument --gpu'),
    })
    expect(check(['--sizes', '64,'], noGpu)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('--sizes takes numbers'),
    })
    expect(check(['--images', 'all'], noGpu)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('--images takes a number'),
    })
  })

  it.each([
    ['has a name that no GPU has', 'NVIDIA Played', 1],
    ['has the name of a GPU', 'CPU', 0],
  ])('checks that a backend computes on the GPU: its device %s', (_, name, status) => {
    const outcome = check(['--sizes', '64', '--images', '1000', 'wasm'], gpuCalled(name))
    expect(outcome).toMatchObject({ status, stderr: '' })
    expect(outcome.stdout).toMatch(/^wasm +matmul 64\^3: .* GFLOP\/s/m)
    expect(outcome.stdout).toMatch(/^wasm +losses of 50 steps differ .* by up to .*e-/m)
    expect(outcome.stdout).toMatch(/^wasm +pipeline of 2 ranks: result \{"accuracy"/m)
    expect(outcome.stdout.includes('FAILED: it does not compute on the GPU')).toBe(status === 1)
    expect(outcome.stdout).toMatch(status === 1 ? /: 1 failed\n$/ : /: all checks passed\n$/)
  })

  it.each([
    ['agree', [1, 0.5], 0],
    ['differ by 0.1 %', [1, 0.5005], 1],
    ['are not all numbers', [1, null], 1],
    ['miss a step', [1], 1],
  ])('judges losses that %s', (_, found, status) => {
    const files = ([[1, 0.5], found] as const).map((losses, i) => {
      const file = join(folder, `${String(i)}.json`)
      writeFileSync(file, JSON.stringify({ losses }))
      return file
    })
    const compared = spawnSync(process.execPath, [measure, 'compare', files[1]!, files[0]!])
    expect(compared.status).toBe(status)
  })

  it('names the GPU and its utilization, and fails if the backend is not installed', () => {
    const { status, stdout } = check(['tensorflow'], oneGpu)
    expect(status).toBe(1)
    expect(stdout).toContain('0, NVIDIA Played\n')
    expect(stdout).toMatch(/^tensorflow +FAILED: .*tsrun setup tensorflow/m)
    expect(stdout).toMatch(/GPU busy up to 37 %, memory used up to 4096 MiB \(2 samples\)/)
    expect(stdout).toMatch(/gpu-check: 1 failed\n$/)
  })
})
