import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { envText, type HostReport } from '../../internals/doctor.ts'
import { tsrunHere } from '../../launcher/support/in-process.ts'

let folder: string
let env: NodeJS.ProcessEnv
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-env-'))
  // A PATH of its own: what the host has must not decide.
  env = { PATH: folder, TSRUN_HOME: folder, LD_LIBRARY_PATH: '' }
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

function program(name: string, script: string): void {
  const path = join(folder, name)
  writeFileSync(path, `#!/bin/sh\n${script}\n`)
  chmodSync(path, 0o755)
}

async function report(more: NodeJS.ProcessEnv = {}): Promise<HostReport> {
  const { code, stdout, stderr } = await tsrunHere(['env', '--json'], {
    env: { ...env, ...more },
    cwd: folder,
  })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return JSON.parse(stdout) as HostReport
}

it('the doctor reports the GPUs from the output of nvidia-smi', async () => {
  program(
    'nvidia-smi',
    `[ "$1" = --query-gpu=name,memory.total,driver_version ] || exit 9
    echo 'NVIDIA H100, 81559 MiB, 570.1'; echo 'NVIDIA H100, 81559 MiB, 570.1'`,
  )
  const found = await report()
  expect(found).toMatchObject({ gpuProblem: null })
  expect(found.gpus).toEqual(Array(2).fill('NVIDIA H100, 81559 MiB, 570.1'))
  expect(envText(found)).toContain(
    '\n- GPUs:\n  - 0: NVIDIA H100, 81559 MiB, 570.1\n  - 1: NVIDIA H100,',
  )
})

it('the doctor says why nvidia-smi failed', async () => {
  program(
    'nvidia-smi',
    'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18',
  )
  const found = await report()
  expect(found).toMatchObject({
    gpus: [],
    gpuProblem: 'nvidia-smi: Failed to initialize NVML: Driver/library version mismatch',
  })
  expect(found.packages).toMatchObject({ '@tsrun/launcher': found.tsrun })
  expect(found.backends).toContainEqual({
    name: 'wasm',
    package: '@tensorflow/tfjs-backend-wasm',
    version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
  })
})

it('the doctor finds a package of the project that does not export its package.json', async () => {
  const home = join(folder, 'node_modules/@tensorflow/tfjs-node')
  mkdirSync(home, { recursive: true })
  writeFileSync(join(home, 'package.json'), '{ "version": "4.99.0", "exports": "./index.js" }')
  const { backends } = await report()
  expect(backends).toContainEqual({
    name: 'tensorflow',
    package: '@tensorflow/tfjs-node',
    version: '4.99.0',
  })
})

it('the doctor shows the variables that tsrun reads, without secrets', async () => {
  const { variables } = await report({
    TSRUN_TOKEN: 'c0ffee',
    TSRUN_TOKEN_FILE: '/run/token',
    TSRUN_API_KEY: 'abc',
    PET_NNODES: '2',
    PET_RDZV_ENDPOINT: 'http://me:c0ffee@host:29500',
    TSRUN_NODE_ARGS: '--import ./a.js --api-key=c0ffee,b',
    RANK: '',
    TF_VAR_password: 'c0ffee',
    SOMETHING: 'else',
  })
  expect(variables).toMatchObject({
    TSRUN_TOKEN: 'set',
    TSRUN_TOKEN_FILE: '/run/token',
    TSRUN_API_KEY: 'set',
    PET_NNODES: '2',
    PET_RDZV_ENDPOINT: 'http://me:…@host:29500',
    TSRUN_NODE_ARGS: '--import ./a.js --api-key=…,b',
    RANK: '',
  })
  expect(JSON.stringify(variables)).not.toMatch(/c0ffee|SOMETHING|TF_VAR/)
  expect(envText(await report({ RANK: '', PET_NNODES: 'a\n*b*' }))).toMatch(
    /\n {2}- PET_NNODES: `a\\n\*b\*`\n {2}- RANK: empty\n/,
  )
})
