import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { readTensorFlowManifest } from '@tsrun/core'
import { whyCpu } from '../../internals/doctor.ts'
import { FakeSetUp } from '../support/fake-set-up.ts'

const fake = new FakeSetUp()
const setUp = fake.run.bind(fake)
beforeEach(() => {
  // The tests may run with GPUs hidden.
  delete process.env['CUDA_VISIBLE_DEVICES']
})

const host = { GPU: 'NVIDIA Played' }

describe('tsrun setup tensorflow --gpu', () => {
  it('names the GPU that it computes on', async () => {
    const onGpu = { ...host, BINDING: 'gpu' }
    const first = await setUp(onGpu, '--gpu')
    expect(first).toMatchObject({ code: 0, stderr: '' })
    expect(first.stdout).toMatch(/set up on NVIDIA Played .*; TSRUN_BACKEND=auto uses it/)
    expect(readTensorFlowManifest(fake.env)?.devices).toEqual(['NVIDIA Played'])
    expect((await setUp(onGpu, '--check')).code).toBe(0)
    expect((await setUp(onGpu, '--gpu')).stdout).toContain('there is nothing to do')
  })

  it('fails if there are GPUs but TensorFlow computes on the CPU, and keeps the previous installation', async () => {
    expect((await setUp({})).code).toBe(0)
    const before = readTensorFlowManifest(fake.env)
    const broken = await setUp({ ...host, BINDING: 'no-driver' }, '--gpu')
    expect(broken.code).toBe(1)
    expect(broken.stderr).toMatch(
      /computes on the CPU \(Could not find cuda drivers on your machine, GPU will not be used\): check that nvidia-smi .* --wheel or --python/,
    )
    expect(readTensorFlowManifest(fake.env)).toEqual(before)
    expect(readdirSync(join(fake.env['TSRUN_HOME']!, 'tensorflow'))).toHaveLength(3)
    const silent = await setUp(host, '--gpu')
    expect(silent.stderr).toContain(
      'TensorFlow does not say why; it may have been built without CUDA',
    )
  })

  it('succeeds if GPUs are hidden on purpose', async () => {
    const hidden = { ...host, BINDING: 'gpu', CUDA_VISIBLE_DEVICES: '' }
    expect((await setUp(hidden, '--gpu')).code).toBe(0)
    expect((await setUp(hidden, '--check')).code).toBe(0)
    expect((await setUp(hidden, '--gpu')).stdout).toContain('there is nothing to do')
  })

  it('succeeds in an image build without GPUs, which --check reports', async () => {
    const image = { BINDING: 'no-driver' }
    const first = await setUp(image, '--gpu')
    expect(first.code).toBe(0)
    expect(first.stdout).toContain('no GPU is visible here: jobs that use this installation need a')
    const second = await setUp(image, '--gpu')
    expect(second.code).toBe(0)
    expect(second.stdout).toMatch(
      /no GPU is visible here \(Could not find .*there is nothing to do/,
    )

    const check = await setUp(image, '--check')
    expect(check.code).toBe(1)
    expect(check.stdout).toMatch(
      /no GPU is visible here .*or CUDA_VISIBLE_DEVICES set to nothing\n$/,
    )
    const idle = await setUp({ ...host, ...image }, '--check')
    expect(idle.code).toBe(1)
    expect(idle.stdout).toMatch(
      /jobs need the GPUs and TensorFlow finds none \(Could not find cuda driv/,
    )
    expect((await setUp({ ...image, CUDA_VISIBLE_DEVICES: '-1' }, '--check')).code).toBe(0)
    expect((await setUp({ ...host, BINDING: 'gpu' }, '--check')).code).toBe(0)
  })
})

it.each([
  [
    'E0000 00:00:17 12 cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)',
    'failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)',
  ],
  [
    '2026-11-22 12:00:00.1: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.\n' +
      'W0000 00:00:17 12 gpu_device.cc:2342] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed.\nSkipping registering GPU devices...',
    'Cannot dlopen some GPU libraries',
  ],
  [
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object file: No such file or directory",
    "Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object file: No such file or directory",
  ],
  ['silence', 'TensorFlow does not say why; it may have been built without CUDA'],
])('reads from the log of TensorFlow why it uses no GPU: %#', (log, reason) => {
  expect(whyCpu(log)).toBe(reason)
})
