import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { killLeftovers, Run, tsrun, until, untilGone } from '../launcher/support/tsrun.ts'

jest.setTimeout(120_000)

interface Report {
  readonly canTrain: boolean
  readonly checks: readonly { name: string; state: string; found: string; details?: string[] }[]
}

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-doctor-'))
})
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true })
})

/** A project whose package @tsrun/training is this module. */
function makeProject(source: string): void {
  const home = join(folder, 'node_modules/@tsrun/training')
  mkdirSync(home, { recursive: true })
  writeFileSync(join(home, 'package.json'), '{ "type": "module", "exports": "./index.js" }')
  writeFileSync(join(home, 'index.js'), source)
}

function find({ checks }: Report, name: string) {
  return checks.find((check) => check.name === name)
}

describe('tsrun doctor', () => {
  it('says that the default backend trains here, a line for each thing', async () => {
    const { code, stdout, stderr } = await tsrun(['doctor'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(new RegExp(`^OK +Node +${process.version} on ${process.platform}`, 'm'))
    expect(stdout).toMatch(/^OK +koffi/m)
    expect(stdout).toMatch(/^OK +shared memory +memfd and \/proc\/PID\/fd work/m)
    expect(stdout).toMatch(/^OK +backend wasm +trains \(TensorFlow\.js \d.*CPU/m)
    expect(stdout).toMatch(/^OK +backend cpu +trains/m)
    expect(stdout).toMatch(/\nThe default backend trains here\.\n$/)
  })

  it('knows what is missing without koffi', async () => {
    const { code, stdout } = await tsrun(['doctor', '--json'], { env: { TSRUN_NATIVE: 'off' } })
    const report = JSON.parse(stdout) as Report
    expect({ code, canTrain: report.canTrain }).toEqual({ code: 0, canTrain: true })
    expect(find(report, 'koffi')).toMatchObject({ state: 'note', found: 'TSRUN_NATIVE=off' })
    expect(find(report, 'shared memory')).toMatchObject({ state: 'note' })
  })

  it('shows the limit of open files', async () => {
    const { stdout } = await tsrun(['doctor', '--json'], { openFiles: 200 })
    expect(find(JSON.parse(stdout) as Report, 'open files')).toMatchObject({
      state: 'note',
      found: 'up to 200 a process',
    })
  })

  it('exits with 1 when the default backend cannot train, and says why', async () => {
    makeProject(`
      export const loadBackend = async () => { throw new Error('a file is missing') }
      export const tf = {}
    `)
    const { code, stdout } = await tsrun(['doctor'], { cwd: folder })
    expect(code).toBe(1)
    expect(stdout).toMatch(/^FAILS +backend wasm +a file is missing\n +-> npm ci/m)
    expect(stdout).toMatch(/\nThe default backend cannot train here: see FAILS above\.\n$/)
  })

  it('reports a backend that ends its process', async () => {
    makeProject(`export const loadBackend = async () => process.abort()`)
    const { code, stdout } = await tsrun(['doctor', '--json'], { cwd: folder })
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
    makeProject(`export const loadBackend = async () => { throw new Error('not here') }`)
    const env = { PATH: `${folder}:${process.env['PATH'] ?? ''}` }
    const { stdout } = await tsrun(['doctor', '--json'], { cwd: folder, env })
    const gpus = find(JSON.parse(stdout) as Report, 'GPUs')
    expect(gpus).toMatchObject({ state: 'ok', found: '2 of NVIDIA' })
    expect(gpus!.details).toEqual([
      'GPU 0: One (UUID: GPU-1)',
      'GPU 1: Two (UUID: GPU-2)',
      '\tGPU0\tGPU1',
      'GPU0\tX\tNV4',
      'GPU1\tNV4\tX',
    ])
  })

  it('ends with what it started when it is told to', async () => {
    const file = join(folder, 'pid')
    makeProject(`
      import { renameSync, writeFileSync } from 'node:fs'
      export const loadBackend = async () => {
        writeFileSync(${JSON.stringify(`${file}.tmp`)}, String(process.pid))
        renameSync(${JSON.stringify(`${file}.tmp`)}, ${JSON.stringify(file)})
        await new Promise((resolve) => setTimeout(resolve, 60_000))
      }
    `)
    const run = new Run(['doctor'], { cwd: folder })
    await until(() => existsSync(file), 'a backend is tried')
    run.signal('SIGTERM')
    expect(await run.finished).toMatchObject({ code: 143, stdout: '' })
    await untilGone([Number(readFileSync(file, 'utf8'))])
  })
})
