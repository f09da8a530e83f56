import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { thisSystem } from '@tsrun/core'
import { deviceEnvironment, findDevices, type Devices } from '../../../internals/launcher/job.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-devices-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

const host: Devices = { cores: 8, gpus: [], libraryFolders: [] }
const given = (devices: Partial<Devices>, env = {}, localRank = 0, localWorldSize = 4) =>
  deviceEnvironment({ ...host, ...devices }, env, localRank, localWorldSize)

/** An environment whose nvidia-smi prints this. */
function withGpus(lines: string, exitCode = 0): Record<string, string> {
  const path = join(folder, 'nvidia-smi')
  writeFileSync(
    path,
    `#!/bin/sh\n[ "$*" = -L ] || exit 9\ncat <<'END'\n${lines}\nEND\nexit ${exitCode}\n`,
  )
  chmodSync(path, 0o755)
  return { PATH: `${folder}:${process.env['PATH']!}`, TSRUN_HOME: folder }
}

describe('the threads of a rank', () => {
  it('default to the cores of the host divided by its ranks', () => {
    const names = ['OMP_NUM_THREADS', 'TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS']
    for (const [cores, ranks, threads] of [
      [8, 4, '2'],
      [8, 3, '2'],
      [2, 4, '1'],
      [6, 1, '6'],
    ] as const) {
      const environment = given({ cores }, {}, 0, ranks)
      expect(names.map((name) => environment[name])).toEqual([threads, threads, threads])
    }
  })

  it('can be set by the user', () => {
    expect(given({}, { OMP_NUM_THREADS: '1', TF_NUM_INTRAOP_THREADS: '5' })).toEqual({
      TF_NUM_INTEROP_THREADS: '2',
    })
  })
})

describe('the GPU of a rank', () => {
  it('is not shared if there are enough GPUs', () => {
    const gpus = ['0', '1', '2', '3']
    const environments = gpus.map((_, localRank) => given({ gpus }, {}, localRank))
    expect(environments.map((environment) => environment['CUDA_VISIBLE_DEVICES'])).toEqual(gpus)
    expect(environments[0]).toHaveProperty('CUDA_DEVICE_ORDER', 'PCI_BUS_ID')
  })

  it('is assigned round-robin if there are fewer GPUs than ranks', () => {
    const environments = [0, 1, 2, 3].map((localRank) => given({ gpus: ['a', 'b'] }, {}, localRank))
    expect(environments.map((environment) => environment['CUDA_VISIBLE_DEVICES'])).toEqual([
      ...['a', 'b', 'a', 'b'],
    ])
  })

  it('allocates memory on demand, because other jobs may use it', () => {
    expect(given({ gpus: ['a', 'b'] })).toHaveProperty('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
    const off = { TF_FORCE_GPU_ALLOW_GROWTH: 'false' }
    expect(given({ gpus: ['a'] }, off)).not.toHaveProperty('TF_FORCE_GPU_ALLOW_GROWTH')
  })

  it('sets no variables if there is no GPU', () => {
    expect(Object.keys(given({})).filter((name) => /CUDA|GPU/.test(name))).toEqual([])
  })
})

describe('the GPUs of a host', () => {
  it('are listed by nvidia-smi', () => {
    const env = withGpus(
      'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)',
    )
    expect(findDevices(env)).toEqual({
      cores: availableParallelism(),
      gpus: ['0', '1'],
      libraryFolders: [],
    })
  })

  it('are the MIG instances if a GPU is divided', () => {
    const env = withGpus(
      'GPU 0: NVIDIA A100 (UUID: GPU-1)\n' +
        '  MIG 3g.20gb     Device  0: (UUID: MIG-a)\n  MIG 3g.20gb     Device  1: (UUID: MIG-b)',
    )
    expect(findDevices(env).gpus).toEqual(['MIG-a', 'MIG-b'])
  })

  it('are none if the driver does not answer', () => {
    expect(findDevices(withGpus('NVIDIA-SMI has failed', 9)).gpus).toEqual([])
  })

  it.each([
    ['2,3', ['2', '3']],
    [' GPU-1 ', ['GPU-1']],
    ['', []],
    ['-1', []],
  ])('are limited by CUDA_VISIBLE_DEVICES=%j', (visible, gpus) => {
    const env = { ...withGpus('GPU 0: x\nGPU 1: x'), CUDA_VISIBLE_DEVICES: visible }
    expect(findDevices(env).gpus).toEqual(gpus)
  })
})

describe('the libraries of the TensorFlow that is set up', () => {
  function setUp(facts: object): Record<string, string> {
    const manifest = {
      format: 1,
      request: {},
      package: 'p',
      folder: '/f',
      libraryFolders: ['/a', '/b'],
    }
    mkdirSync(join(folder, 'tensorflow'))
    const text = JSON.stringify({ ...manifest, system: thisSystem, ...facts })
    writeFileSync(join(folder, 'tensorflow/manifest.json'), text)
    return withGpus('')
  }

  it('precede the libraries of the user', () => {
    const { libraryFolders } = findDevices(setUp({}))
    expect(given({ libraryFolders })).toHaveProperty('LD_LIBRARY_PATH', '/a:/b')
    const env = { LD_LIBRARY_PATH: '/mine' }
    expect(given({ libraryFolders }, env)).toHaveProperty('LD_LIBRARY_PATH', '/a:/b:/mine')
    expect(given({}, env)).not.toHaveProperty('LD_LIBRARY_PATH')
  })

  it.each([{ system: 'plan9-mips' }, { format: 2 }])('are omitted if it is %j', (facts) => {
    expect(findDevices(setUp(facts)).libraryFolders).toEqual([])
  })
})
