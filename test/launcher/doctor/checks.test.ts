import {
  checkBackends,
  checkBlas,
  checkGpus,
  checkMpi,
  checkMemory,
  checkNative,
  checkOpenFiles,
  checkScheduler,
  checkSharedMemory,
  checkLimits,
  checkThreads,
  checkInstallScripts,
  checkNode,
  checkObserve,
  checkTypeScript,
  type Facts,
  type Check,
  type Finding,
} from '../../internals/launcher/doctor.ts'
import { version } from '../../internals/launcher/job.ts'
import { canTrain, reportText } from '../../internals/launcher/commands.ts'

const GIB = 2 ** 30

/** A host where everything is as it should be. */
const healthy: Facts = {
  observe: { version, fits: true, path: '' },
  node: {
    ...{ version: 'v20.19.0', system: 'linux-x64', nodeOptions: '', typescript: false },
    tsx: '/p/node_modules/tsx/index.js',
  },
  npm: { version: '10.8.2', ignoresScripts: false },
  native: { available: true },
  sharedMemory: { problem: undefined, size: 8 * GIB, free: 7 * GIB },
  autogroups: false,
  openFiles: 4096,
  cores: { allowed: 4, all: 4, quota: undefined, usable: 4 },
  limits: { 'pids.max of the cgroup': Infinity, 'ulimit -u': 63_000, 'ulimit -v': Infinity },
  memory: { size: 16 * GIB, copied: 12.34e9 },
  backends: [{ name: 'wasm', works: true, version: 'TensorFlow.js 4', device: 'CPU', threads: 1 }],
  tensorflow: { manifest: undefined },
  blas: { library: 'libblas.so', origin: 'the system', kernels: 'Zen', problems: [] },
  gpus: { nvidia: [], topology: [], problem: undefined, uses: undefined, misnamed: undefined },
  mpi: { libraries: [], mpirun: undefined },
}
const noKoffi = { available: false, reason: 'the package koffi cannot be loaded' } as const
const failed = { works: false, missing: false, reason: 'out of order' } as const
const missing = { works: false, missing: true, reason: 'not there' } as const
const unused = { problem: undefined, uses: undefined, misnamed: undefined }
const oneGpu = { nvidia: ['GPU 0: one'], topology: [], ...unused }
const twoGpus = { nvidia: ['GPU 0: a', 'GPU 1: b'], topology: ['GPU0 GPU1'], ...unused }
const ok = { state: 'ok', advice: undefined }

function state(check: Check, changes: Partial<Facts>): Finding {
  const [finding] = check({ ...healthy, ...changes })
  return { advice: undefined, ...finding! }
}

const cases: [string, Check, Partial<Facts>, object][] = [
  ['@tsrun/observe', checkObserve, {}, { ...ok, found: 'dashboard, metrics and traces' }],
  [
    'a tsrun without @tsrun/observe',
    checkObserve,
    { observe: undefined },
    { state: 'note', found: 'not installed', advice: expect.stringContaining('npm install') },
  ],
  [
    '@tsrun/observe of another version',
    checkObserve,
    { observe: { version: '0.0.1', fits: false, path: '' } },
    {
      state: 'note',
      found: `version 0.0.1, unlike tsrun (${version})`,
      advice: expect.stringContaining(`npm install @tsrun/observe@${version}`),
    },
  ],
  ['a Node that is new enough', checkNode, {}, { ...ok, found: 'v20.19.0 on linux-x64' }],
  [
    'an old Node',
    checkNode,
    { node: { ...healthy.node, version: 'v20.18.3' } },
    { state: 'problem', advice: 'Install Node 20.19 or later.' },
  ],
  [
    'another system',
    checkNode,
    { node: { ...healthy.node, system: 'darwin-arm64' } },
    { state: 'note', advice: expect.stringContaining('only on Linux') },
  ],
  ['tsx', checkTypeScript, {}, { ...ok, found: 'through tsx' }],
  [
    'a Node that strips types',
    checkTypeScript,
    { node: { ...healthy.node, typescript: 'strip', tsx: undefined } },
    ok,
  ],
  [
    'a Node that knows no TypeScript',
    checkTypeScript,
    { node: { ...healthy.node, tsx: undefined } },
    { state: 'note', advice: expect.stringContaining('npm install --save-dev tsx') },
  ],
  ['an npm that runs install scripts', checkInstallScripts, {}, ok],
  ['no npm', checkInstallScripts, { npm: undefined }, ok],
  [
    'an npm that blocks install scripts',
    checkInstallScripts,
    { npm: { version: '12.0.1', ignoresScripts: false } },
    { state: 'ok', advice: expect.stringContaining('tsrun setup tensorflow') },
  ],
  [
    'ignore-scripts, and no koffi',
    checkInstallScripts,
    { npm: { version: '10.8.2', ignoresScripts: true }, native: noKoffi },
    { state: 'note', advice: expect.stringContaining('npm rebuild koffi') },
  ],
  ['koffi', checkNative, {}, ok],
  [
    'no koffi',
    checkNative,
    { native: noKoffi },
    { state: 'note', found: noKoffi.reason, advice: expect.stringContaining('npm install koffi') },
  ],
  ['shared memory', checkSharedMemory, {}, { ...ok, found: expect.stringContaining('7 GiB of') }],
  [
    'no /dev/shm',
    checkSharedMemory,
    { sharedMemory: { problem: undefined, size: undefined, free: undefined } },
    ok,
  ],
  [
    'the small /dev/shm of a container',
    checkSharedMemory,
    { sharedMemory: { problem: undefined, size: 64 * 2 ** 20, free: 2 ** 20 } },
    { state: 'ok', advice: expect.stringContaining('--shm-size') },
  ],
  [
    'memory that cannot be shared',
    checkSharedMemory,
    { sharedMemory: { problem: 'memfd_create: EPERM', size: GIB, free: GIB } },
    { state: 'note', found: 'memfd_create: EPERM', advice: expect.stringContaining('seccomp') },
  ],
  ['a scheduler without autogroups', checkScheduler, {}, ok],
  ['autogroups, with ranks in one session', checkScheduler, { autogroups: true }, ok],
  [
    'autogroups, with a session for each rank',
    checkScheduler,
    { autogroups: true, native: noKoffi },
    { state: 'note', advice: expect.stringContaining('sched_autogroup_enabled=0') },
  ],
  ['enough open files', checkOpenFiles, { openFiles: Infinity }, { ...ok, found: 'no limit' }],
  ['an unknown limit of open files', checkOpenFiles, { openFiles: undefined }, ok],
  [
    'few open files',
    checkOpenFiles,
    { openFiles: 256 },
    { state: 'note', advice: expect.stringContaining('ulimit -n 4096') },
  ],
  ['all cores', checkThreads, {}, { ...ok, found: '4 cores; --nproc auto starts 4' }],
  ['memory', checkMemory, {}, { ...ok, found: '16 GiB; one core copies 12.3 GB/s' }],
  [
    'some of the cores',
    checkThreads,
    { cores: { allowed: 2, all: 64, quota: 3, usable: 2 } },
    { ...ok, found: '2 of 64 cores; --nproc auto starts 2' },
  ],
  [
    'less time than cores',
    checkThreads,
    { cores: { allowed: 8, all: 8, quota: 1.5, usable: 1 } },
    {
      state: 'note',
      found: '8 cores; --nproc auto starts 1',
      advice: expect.stringContaining('time of 1.5 cores'),
    },
  ],
  ['room for processes', checkLimits, {}, { ...ok, found: 'ulimit -u: 63000' }],
  [
    'no limits',
    checkLimits,
    { limits: { ...healthy.limits, 'ulimit -u': Infinity } },
    { ...ok, found: 'none on processes and addresses' },
  ],
  ...[{ 'pids.max of the cgroup': 40 }, { 'ulimit -u': 40 }, { 'ulimit -v': 2e6 }].map(
    (limit): [string, Check, Partial<Facts>, object] => [
      `a small limit (${Object.keys(limit).join()})`,
      checkLimits,
      { limits: { ...healthy.limits, ...limit } },
      { state: 'note', advice: expect.stringContaining('start fewer ranks') },
    ],
  ),
  [
    'a backend that trains',
    checkBackends,
    {},
    { ...ok, found: 'trains (TensorFlow.js 4, CPU, 1 thread)' },
  ],
  [
    'the default backend that fails',
    checkBackends,
    { backends: [{ name: 'wasm', ...failed }] },
    { state: 'problem', found: 'out of order', advice: expect.stringContaining('npm ci') },
  ],
  [
    'no @tsrun/training',
    checkBackends,
    { backends: [{ name: 'wasm', ...missing }] },
    { state: 'problem', advice: 'npm install @tsrun/training' },
  ],
  [
    'another backend that fails',
    checkBackends,
    { backends: [{ name: 'tensorflow', ...failed }] },
    { state: 'note', advice: 'npx tsrun setup tensorflow --check' },
  ],
  [
    'a GPU without TensorFlow',
    checkBackends,
    {
      backends: [{ name: 'tensorflow', ...missing }],
      gpus: oneGpu,
    },
    { state: 'note', advice: 'npx tsrun setup tensorflow --gpu' },
  ],
  [
    'no webgpu',
    checkBackends,
    { backends: [{ name: 'webgpu', ...missing }] },
    { state: 'note', advice: expect.stringContaining('npm install webgpu') },
  ],
  [
    'webgpu without a driver',
    checkBackends,
    { backends: [{ name: 'webgpu', ...failed }] },
    { state: 'note', advice: expect.stringContaining('TSRUN_WEBGPU_ADAPTER') },
  ],
  [
    'a BLAS',
    checkBlas,
    {},
    { ...ok, found: 'libblas.so, kernels Zen, from the system', details: [] },
  ],
  [
    'no BLAS',
    checkBlas,
    {
      blas: { library: null, origin: null, kernels: null, problems: ['libblas.so: no such file'] },
    },
    {
      ...{ state: 'note', found: 'none', details: ['libblas.so: no such file'] },
      advice: expect.stringMatching(/npx tsrun setup blas.* apt-get install libopenblas0/),
    },
  ],
  ['no GPU', checkGpus, {}, { ...ok, found: 'no NVIDIA GPU (there is no nvidia-smi)' }],
  [
    'GPUs',
    checkGpus,
    { gpus: twoGpus },
    { ...ok, found: '2 NVIDIA GPUs', details: ['GPU 0: a', 'GPU 1: b', 'GPU0 GPU1'] },
  ],
  [
    'a GPU that another program uses',
    checkGpus,
    { gpus: { ...twoGpus, uses: 'GPU 1 is in use (pid 7, python3, 1 GiB)' } },
    { ...ok, found: '2 NVIDIA GPUs: GPU 1 is in use (pid 7, python3, 1 GiB)' },
  ],
  [
    'a GPU that does not exist',
    checkGpus,
    { gpus: { ...twoGpus, misnamed: 'CUDA_VISIBLE_DEVICES names GPU 2' } },
    {
      ...{ state: 'note', found: '2 NVIDIA GPUs, but CUDA_VISIBLE_DEVICES names GPU 2' },
      advice: 'Change CUDA_VISIBLE_DEVICES, or unset it.',
    },
  ],
  [
    'a driver that does not answer',
    checkGpus,
    { gpus: { ...oneGpu, nvidia: [], problem: 'nvidia-smi: no devices' } },
    { state: 'note', advice: expect.stringContaining('driver') },
  ],
  ['no MPI', checkMpi, {}, { ...ok, found: 'none; it is not needed' }],
  [
    'MPI',
    checkMpi,
    { mpi: { libraries: ['/lib/libmpi.so.40'], mpirun: 'mpirun (Open MPI) 5.0.1' } },
    { ...ok, found: 'mpirun (Open MPI) 5.0.1, /lib/libmpi.so.40' },
  ],
  [
    'mpirun without its library',
    checkMpi,
    { mpi: { libraries: [], mpirun: 'mpirun (Open MPI) 5.0.1' } },
    { state: 'note', advice: expect.stringContaining('TSRUN_LIBMPI') },
  ],
  [
    'MPI without koffi',
    checkMpi,
    { mpi: { libraries: ['/lib/libmpi.so.12'], mpirun: undefined }, native: noKoffi },
    { state: 'note', advice: expect.stringContaining('koffi') },
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
