import { canTrain, judge, reportText, type Facts, type Finding } from '../../internals/doctor.ts'
import { healthy } from '../support/healthy-host.ts'

const GIB = 2 ** 30

const noKoffi = { available: false, reason: 'the package koffi cannot be loaded' } as const
const failed = { works: false, missing: false, reason: 'out of order' } as const
const missing = { works: false, missing: true, reason: 'not there' } as const
const oneGpu = { nvidia: ['GPU 0: one'], topology: [], problem: undefined }
const twoGpus = { nvidia: ['GPU 0: a', 'GPU 1: b'], topology: ['GPU0 GPU1'], problem: undefined }
const ok = { state: 'ok', advice: undefined }

/** @param check - the beginning of its name */
function state(check: string, changes: Partial<Facts>): Finding {
  const findings = judge({ ...healthy, ...changes })
  return { advice: undefined, ...findings.find(({ name }) => name.startsWith(check))! }
}

const cases: [string, string, Partial<Facts>, object][] = [
  ['a Node that is new enough', 'Node', {}, { ...ok, found: 'v20.19.0 on linux-x64' }],
  [
    'an old Node',
    'Node',
    { node: { ...healthy.node, version: 'v20.18.3' } },
    { state: 'problem', advice: 'Install Node 20.19 or later.' },
  ],
  [
    'another system',
    'Node',
    { node: { ...healthy.node, system: 'darwin-arm64' } },
    { state: 'note', advice: expect.stringContaining('only on Linux') },
  ],
  ['koffi', 'koffi', {}, ok],
  [
    'no koffi',
    'koffi',
    { native: noKoffi },
    { state: 'note', found: noKoffi.reason, advice: expect.stringContaining('npm install koffi') },
  ],
  ['shared memory', 'shared memory', {}, { ...ok, found: expect.stringContaining('7 GiB of') }],
  ['no /dev/shm', 'shared memory', { sharedMemory: { problem: undefined } }, ok],
  [
    'memory that cannot be shared',
    'shared memory',
    { sharedMemory: { problem: 'memfd_create: EPERM', size: GIB, free: GIB } },
    { state: 'note', found: 'memfd_create: EPERM', advice: expect.stringContaining('seccomp') },
  ],
  ['all cores', 'threads', {}, { ...ok, found: '4 cores; --nproc auto starts 4' }],
  ['memory', 'memory', {}, { ...ok, found: '16 GiB; one core copies 12.3 GB/s' }],
  [
    'some of the cores',
    'threads',
    { cores: { allowed: 2, all: 64, quota: 3, usable: 2 } },
    { ...ok, found: '2 of 64 cores; --nproc auto starts 2' },
  ],
  [
    'less time than cores',
    'threads',
    { cores: { allowed: 8, all: 8, quota: 1.5, usable: 1 } },
    {
      state: 'note',
      found: '8 cores; --nproc auto starts 1',
      advice: expect.stringContaining('time of 1.5 cores'),
    },
  ],
  ['room for processes', 'limits', {}, { ...ok, found: 'ulimit -u: 63000' }],
  [
    'no limits',
    'limits',
    { limits: { ...healthy.limits, 'ulimit -u': Infinity } },
    { ...ok, found: 'none' },
  ],
  ...[
    { 'pids.max of the cgroup': 40 },
    { 'ulimit -u': 40 },
    { 'ulimit -v': 2e6 },
    { 'open files': 256 },
  ].map((limit): [string, string, Partial<Facts>, object] => [
    `a small limit (${Object.keys(limit).join()})`,
    'limits',
    { limits: { ...healthy.limits, ...limit } },
    { state: 'note', advice: expect.stringContaining('start fewer ranks') },
  ]),
  [
    'a backend that trains',
    'backend',
    {},
    { ...ok, found: 'trains (TensorFlow.js 4, CPU, 1 thread)' },
  ],
  [
    'the default backend that fails',
    'backend',
    { backends: [{ name: 'wasm', ...failed }] },
    { state: 'problem', found: 'out of order', advice: expect.stringContaining('npm ci') },
  ],
  [
    'no @tsrun/training',
    'backend',
    { backends: [{ name: 'wasm', ...missing }] },
    { state: 'problem', advice: 'npm install @tsrun/training' },
  ],
  [
    'another backend that fails',
    'backend',
    { backends: [{ name: 'tensorflow', ...failed }] },
    { state: 'note', advice: 'npx tsrun setup tensorflow --check' },
  ],
  [
    'a GPU without TensorFlow',
    'backend',
    {
      backends: [{ name: 'tensorflow', ...missing }],
      gpus: oneGpu,
    },
    { state: 'note', advice: 'npx tsrun setup tensorflow --gpu' },
  ],
  [
    'no webgpu',
    'backend',
    { backends: [{ name: 'webgpu', ...missing }] },
    { state: 'note', advice: expect.stringContaining('npm install webgpu') },
  ],
  [
    'webgpu without a driver',
    'backend',
    { backends: [{ name: 'webgpu', ...failed }] },
    { state: 'note', advice: expect.stringContaining('TSRUN_WEBGPU_ADAPTER') },
  ],
  ['a BLAS', 'BLAS', {}, { ...ok, found: 'libblas.so, kernels Zen, from the system', details: [] }],
  [
    'no BLAS',
    'BLAS',
    {
      blas: { library: null, origin: null, kernels: null, problems: ['libblas.so: no such file'] },
    },
    {
      ...{ state: 'note', found: 'none', details: ['libblas.so: no such file'] },
      advice: expect.stringMatching(/npx tsrun setup blas.* apt-get install libopenblas0/),
    },
  ],
  ['no GPU', 'GPUs', {}, { ...ok, found: 'no NVIDIA GPU (there is no nvidia-smi)' }],
  [
    'GPUs',
    'GPUs',
    { gpus: twoGpus },
    { ...ok, found: '2 NVIDIA GPUs', details: ['GPU 0: a', 'GPU 1: b', 'GPU0 GPU1'] },
  ],
  [
    'a driver that does not answer',
    'GPUs',
    { gpus: { ...oneGpu, nvidia: [], problem: 'nvidia-smi: no devices' } },
    { state: 'note', advice: expect.stringContaining('driver') },
  ],
]

it.each(cases)('the doctor judges %s', (_, check, changes, expected) => {
  expect(state(check, changes)).toMatchObject(expected)
})

it('only problems keep the default backend from training', () => {
  const note: Finding = { name: 'koffi', state: 'note', found: 'none', advice: 'install it' }
  const problem: Finding = { name: 'a backend', state: 'problem', found: 'none', details: ['why'] }
  expect(canTrain([note])).toBe(true)
  expect(canTrain([note, problem])).toBe(false)
  const [, ...lines] = reportText([note, problem]).split('\n')
  expect(lines).toEqual([
    'note   koffi      none',
    '                  -> install it',
    'FAILS  a backend  none',
    '                  why',
    'The default backend cannot train here: see FAILS above.',
    '',
  ])
})
