import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tsrunHere } from '../../launcher/support/in-process.ts'
import { find, makeProject, type Report } from '../support/report.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-doctor-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

describe('tsrun doctor', () => {
  it('refuses a range of ports as tsrun itself does', async () => {
    const args = ['doctor', '--hosts', 'hosts', '--port-range', '29699-29600']
    const { code, stderr } = await tsrunHere(args, { cwd: folder })
    expect(code).toBe(2)
    expect(stderr).toContain(
      '--port-range is "29699-29600"; expected two ports, for example 29600-29699',
    )
  })

  it('exits with 1 when the default backend cannot train, and says why', async () => {
    makeProject(
      folder,
      `
      export const loadBackend = async () => { throw new Error('a file is missing') }
      export const tf = {}
    `,
    )
    const { code, stdout } = await tsrunHere(['doctor'], { cwd: folder })
    expect(code).toBe(1)
    expect(stdout).toMatch(/^FAILS +backend wasm +a file is missing\n +-> Run npm ci/m)
    expect(stdout).toMatch(/\nThe default backend cannot train here: see FAILS above\.\n$/)
  })

  it('reports a backend that crashes its process', async () => {
    makeProject(folder, `export const loadBackend = async () => process.abort()`)
    const { code, stdout } = await tsrunHere(['doctor', '--json'], { cwd: folder })
    expect(code).toBe(1)
    const wasm = find(JSON.parse(stdout) as Report, 'backend wasm')
    expect(wasm).toMatchObject({
      state: 'problem',
      found: expect.stringMatching(/ended by SIGABRT/),
    })
  })

  it('shows the GPUs and how they are connected', async () => {
    const smi = join(folder, 'nvidia-smi')
    const script = [
      '#!/bin/sh',
      'case $1 in',
      '-L) echo "GPU 0: One (UUID: GPU-1)"; echo "GPU 1: Two (UUID: GPU-2)";;',
      'topo) printf "\\tGPU0\\tGPU1\\nGPU0\\tX\\tNV4\\nGPU1\\tNV4\\tX\\n";;',
      'esac',
    ]
    writeFileSync(smi, `${script.join('\n')}\n`)
    chmodSync(smi, 0o755)
    makeProject(folder, `export const loadBackend = async () => { throw new Error('not here') }`)
    const env = { PATH: `${folder}:${process.env['PATH'] ?? ''}` }
    const { stdout } = await tsrunHere(['doctor', '--json'], { cwd: folder, env })
    const gpus = find(JSON.parse(stdout) as Report, 'GPUs')
    expect(gpus).toMatchObject({ state: 'ok', found: '2 NVIDIA GPUs' })
    expect(gpus!.details).toEqual([
      'GPU 0: One (UUID: GPU-1)',
      'GPU 1: Two (UUID: GPU-2)',
      '\tGPU0\tGPU1',
      'GPU0\tX\tNV4',
      'GPU1\tNV4\tX',
    ])
  })
})
