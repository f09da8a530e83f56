import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readTensorFlowManifest, writeManifest } from '@tsrun/core'
import { BINDING_REVISION } from '../../internals/doctor.ts'
import { fakeTools } from '../support/fake-tools.ts'
import { tsrunHere } from '../../launcher/support/in-process.ts'

const all = ['npm', 'python3', 'g++'] as const

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-setup-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
})

const setUp = (env: NodeJS.ProcessEnv, ...flags: string[]) =>
  tsrunHere(['setup', 'tensorflow', ...flags], { env })

/** What lies in the folder of the set-up. */
const contents = (env: NodeJS.ProcessEnv): string[] =>
  readdirSync(join(env['TSRUN_HOME']!, 'tensorflow')).sort()

describe('tsrun setup tensorflow', () => {
  it('prints one sentence per step, writes a manifest, and does nothing the second time', async () => {
    const env = fakeTools(folder, all)
    const before = await setUp(env, '--check')
    expect(before).toMatchObject({ code: 1, stderr: '' })
    expect(before.stdout).toMatch(
      /TensorFlow is not set up in .*: run `npx tsrun setup tensorflow`/,
    )

    const first = await setUp(env)
    expect({ ...first, stdout: '' }).toMatchObject({ code: 0, stderr: '' })
    expect(first.stdout).toMatch(
      /1\/5 found the tools: Node .*, npm 11\.0\.0, Python 3\.12\.0, g\+\+ 13\.0\n/,
    )
    const steps = first.stdout
      .split('\n')
      // what takes long on a busy machine says so in between
      .filter((line) => !line.startsWith('tsrun setup: …'))
      .map((line) => line.slice(0, 19))
    expect(steps).toEqual([
      'tsrun setup: instal',
      ...[1, 2, 3, 4, 5].map((step) => expect.stringMatching(`tsrun setup: ${step}/5 `) as string),
      'tsrun setup: Tensor',
      '',
    ])
    const manifest = readTensorFlowManifest(env)
    expect(manifest).toMatchObject({
      package: '@tensorflow/tfjs-node',
      packageVersion: '4.22.0',
      tensorflowVersion: '2.99.0',
      devices: ['CPU'],
      libraryFolders: [join(readTensorFlowManifest(env)!.folder, 'venv/bin/tensorflow')],
    })
    const files = contents(env)
    expect(files).toEqual([expect.stringMatching(/^build-/), 'manifest.json', 'setup.log'])

    const second = await setUp(env)
    expect(second.stdout).toMatch(/TensorFlow 2\.99\.0 is set up on CPU .*; there is nothing to do/)
    expect(readTensorFlowManifest(env)).toEqual(manifest)
    expect((await setUp(env, '--check')).code).toBe(0)

    // What no longer works is told, and built again; the old files go.
    const broken = await setUp({ ...env, BINDING: 'broken' }, '--check')
    expect(broken.code).toBe(1)
    expect(broken.stdout).toMatch(/does not work \(Error: libtensorflow_cc.*\): run .* again/)
    rmSync(manifest!.folder, { recursive: true })
    expect((await setUp(env)).code).toBe(0)
    expect(readTensorFlowManifest(env)?.folder).not.toBe(manifest!.folder)
    expect(contents(env)).toHaveLength(3)
  })

  it('succeeds without kernels if they do not compile, and adds them to an older installation', async () => {
    const env = fakeTools(folder, all)
    expect((await setUp({ ...env, COMPILER: 'other-headers' })).code).toBe(0)
    const { bindingRevision, ...older } = readTensorFlowManifest(env)!
    expect(bindingRevision).toBe(BINDING_REVISION)
    writeManifest('tensorflow', older, env)
    expect((await setUp(env)).stdout).toContain('compiling the binding')
    expect(readTensorFlowManifest(env)?.bindingRevision).toBe(BINDING_REVISION)
    expect((await setUp(env)).stdout).toContain('there is nothing to do')
  })

  it('uses a TensorFlow that the user names, without pip', async () => {
    const env = fakeTools(folder, all)
    const python = join(folder, 'bin/python3')
    const tensorflow = join(folder, 'bin/tensorflow')
    mkdirSync(join(tensorflow, 'include/tensorflow/c/eager'), { recursive: true })
    for (const name of ['libtensorflow_cc.so.2', 'include/tensorflow/c/eager/c_api.h']) {
      writeEmpty(join(tensorflow, name))
    }
    const half = await setUp(env, '--python', python)
    expect(half.stderr).toMatch(
      /has no libtensorflow_framework\.so\.2: use the wheel of TensorFlow/,
    )
    writeEmpty(join(tensorflow, 'libtensorflow_framework.so.2'))
    expect((await setUp(env, '--python', python)).code).toBe(0)
    expect(readTensorFlowManifest(env)).toMatchObject({
      libraryFolders: [tensorflow],
      request: { wheel: null, python },
    })
  })

  it('uses an unpacked wheel without Python', async () => {
    const env = fakeTools(folder, ['npm', 'g++'])
    const wheel = join(folder, 'given/tensorflow')
    mkdirSync(join(wheel, 'include/tensorflow/c/eager'), { recursive: true })
    for (const name of [
      'libtensorflow_cc.so.2',
      'libtensorflow_framework.so.2',
      'include/tensorflow/c/eager/c_api.h',
    ])
      writeEmpty(join(wheel, name))
    expect((await setUp(env, '--wheel', join(folder, 'given'))).code).toBe(0)
    expect(readTensorFlowManifest(env)).toMatchObject({
      libraryFolders: [wheel],
      request: { wheel: join(folder, 'given'), python: null },
    })
  })

  it('installs wheels from a folder without a network, and CUDA with --gpu', async () => {
    const env = fakeTools(folder, all)
    const wheels = join(folder, 'wheels')
    mkdirSync(wheels)
    const { stderr } = await setUp(env, '--wheel', wheels)
    expect(stderr).toContain('(--wheel) holds neither a TensorFlow wheel')
    writeEmpty(join(wheels, 'tensorflow_cpu-2.99.0-cp312-cp312-linux_x86_64.whl'))
    expect((await setUp(env, '--wheel', wheels)).code).toBe(0)
    const pip = (): string => readFileSync(join(folder, 'pip-arguments'), 'utf8')
    expect(pip()).toMatch(/--no-deps --no-index \S+\.whl$/m)
    const gpu = await setUp(env, '--gpu')
    expect(gpu.code).toBe(0)
    expect(gpu.stdout).toContain('no GPU is visible here')
    expect(pip()).toMatch(/--no-deps --require-hashes -r \S+\/tensorflow-gpu\.txt$/m)
    expect(readTensorFlowManifest(env)?.package).toBe('@tensorflow/tfjs-node-gpu')
  })

  it('needs neither Python nor a compiler with --official, and checks the hashes of downloads', async () => {
    const env = fakeTools(folder, ['npm'])
    const offline = await setUp({ ...env, DOWNLOAD: 'offline' }, '--official')
    expect(offline.stderr).toMatch(/install script of @tensorflow\/tfjs-node failed \(Error: 403\)/)
    const nothing = await setUp(env, '--official')
    expect(nothing.stderr).toContain('has downloaded nothing whose hash could be compared')

    const server = createServer((request, response) => {
      response.end(request.url)
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    try {
      const from = { ...env, DOWNLOAD: `http://127.0.0.1:${port}` }
      const [library, binding] = ['libtensorflow-cpu-linux-x86_64-2.9.1.tar.gz', 'binding.tar.gz']
      const changed = await setUp({ ...from, ARCHIVES: `${binding} ${library}` }, '--official')
      expect(changed).toMatchObject({ code: 1 })
      expect(changed.stderr).toMatch(
        /libtensorflow-cpu-linux-x86_64-2\.9\.1\.tar\.gz has the SHA-256 [0-9a-f]{64}, and not 7f510d25/,
      )
      expect(contents(env)).toEqual(['setup.log'])

      const unknown = { ...from, ARCHIVES: binding }
      const { code, stdout } = await setUp(unknown, '--official')
      const sha256 = createHash('sha256').update(`/${binding}`).digest('hex')
      expect(code).toBe(0)
      expect(stdout).toContain(`/${binding}: its SHA-256 is ${sha256}`)
    } finally {
      server.close()
    }
  })
})

describe('tsrun setup tensorflow says what to do when', () => {
  it.each([
    ['there is no npm', ['python3', 'g++'], {}, /no working npm on the PATH: install the one/],
    ['there is no compiler', ['npm', 'python3'], {}, /no C\+\+ compiler .*apt-get install g\+\+/],
    [
      'the compiler has no library',
      all,
      { COMPILER: 'no-library' },
      /g\+\+ cannot compile C\+\+17/,
    ],
    [
      'the compiler named in CXX is missing',
      all,
      { CXX: 'icpc' },
      /no C\+\+ compiler icpc, which CXX names/,
    ],
    ['there is no Python', ['npm', 'g++'], {}, /no Python .*--python PATH, or use --official/],
    ['Python has no venv', all, { PYTHON: 'no-venv' }, /3\.12\.0 .* has no module venv: install/],
    [
      'npm has no network',
      all,
      { NPM: 'offline' },
      /npm could not install .*network request failed.*registry of your npm configuration/,
    ],
    [
      'pip has no network',
      all,
      { PIP: 'offline' },
      /pip could not install TensorFlow 2\.21\.0 .*index of your pip configuration/,
    ],
    [
      'npm downloads a file with another checksum',
      all,
      { NPM: 'other-file' },
      /npm could not install .*integrity checksum failed.*gives other files than those/,
    ],
    [
      'pip downloads a file with another checksum',
      all,
      { PIP: 'other-file' },
      /pip could not install TensorFlow 2\.21\.0 \(ERROR: THESE PACKAGES DO NOT MATCH.*gives other files than those/,
    ],
    [
      'the wheel has no module tensorflow',
      all,
      { PIP: 'other-wheel' },
      /no module tensorflow: it is a different/,
    ],
    ['the wheel has no headers', all, { PIP: 'no-headers' }, /has no include\/tensorflow.*2\.16/],
    [
      'the wheel does not fit the binding',
      all,
      { COMPILER: 'misfit' },
      /could not compile the binding .*'TFE_Op' was not declared.*--wheel/,
    ],
    [
      'the binding does not load',
      all,
      { BINDING: 'broken' },
      /the result does not work \(Error: libtensorflow_cc\.so\.2: wrong ELF class\)/,
    ],
  ] as const)('%s, and leaves no files', async (_, tools, failure, sentence) => {
    const env = { ...fakeTools(folder, tools), ...failure }
    const { code, stderr } = await setUp(env)
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(sentence) as string })
    expect(stderr).toMatch(/^tsrun: TensorFlow was not set up: .*\(ERR_TSR_SETUP\)\n$/)
    expect(contents(env)).toEqual(['setup.log'])
  })

  it('the folder cannot be written', async () => {
    const env = { ...fakeTools(folder, all), TSRUN_HOME: '/dev/null/home' }
    expect((await setUp(env)).stderr).toMatch(
      /cannot be written .*: name another folder in TSRUN_HOME/,
    )
    // where Node's mkdir goes round for ever
    const { stderr } = await setUp({ ...env, TSRUN_HOME: '/proc/nowhere/home' })
    expect(stderr).toMatch(/cannot be written .*: name another folder in TSRUN_HOME/)
  })
})

function writeEmpty(path: string): void {
  writeFileSync(path, '')
}
