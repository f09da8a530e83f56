import {
  toJobOptions,
  completeSettings,
  describeEnvironment,
  type FlagValues,
} from '../../internals/launcher/args.ts'

type Environment = Record<string, string>

const read = (values: FlagValues, env: Environment = {}) => {
  const machine = { cores: 4, gpus: () => 0, usesGpus: () => false }
  const options = toJobOptions(completeSettings(values, env), ['train.ts'], machine)
  return { ...options.placement, ...options.rendezvous }
}

/** What a task of `srun --nodes 2 --ntasks-per-node 1` sees on its second node. */
const slurm = {
  SLURM_NODEID: '1',
  SLURM_PROCID: '1',
  SLURM_NTASKS: '2',
  SLURM_NNODES: '2',
  SLURM_JOB_NODELIST: 'n[1-2]',
  SLURM_STEP_NODELIST: 'n[1-2]',
  SLURM_STEP_NUM_TASKS: '2',
  SLURM_STEP_ID: '0',
}

it('inside a Slurm step, nodes and node rank come from Slurm, which the launcher reports', () => {
  expect(read({ nproc: '3' }, slurm)).toMatchObject({
    nproc: 3,
    nnodes: 2,
    nodeRank: 1,
    host: 'n1',
    port: 29_500,
  })
  expect(describeEnvironment(completeSettings({}, slurm))).toBe(
    'from the environment: nnodes=2 (SLURM_NNODES), node-rank=1 (SLURM_NODEID), ' +
      'master-addr=n1 (SLURM_STEP_NODELIST)',
  )
})

it('derives the port from the Slurm job ID, so that jobs that share a host use different ports', () => {
  const step = { ...slurm, SLURM_JOB_ID: '1234' }
  expect(read({}, step).port).toBe(22_340)
  expect(describeEnvironment(completeSettings({}, step))).toContain(
    'master-port=22340 (SLURM_JOB_ID)',
  )
  expect(read({ 'master-port': '1' }, step).port).toBe(1)
  expect(read({}, { ...step, MASTER_PORT: '2' }).port).toBe(2)
  expect(read({ 'rdzv-endpoint': 'n0' }, step).port).toBe(29_500)
})

it('flags, TSRUN_* and PET_* take precedence over the variables of the scheduler', () => {
  const env = { ...slurm, PET_MASTER_PORT: '30000', TSRUN_NODE_RANK: '0' }
  expect(read({ 'rdzv-endpoint': 'other:1234' }, env)).toMatchObject({
    nnodes: 2,
    nodeRank: 0,
    host: 'other',
    port: 1234,
  })
  expect(read({}, env)).toMatchObject({ host: 'n1', port: 30_000 })
  expect(read({ nnodes: '1' }, env)).toMatchObject({ nnodes: 1, host: '127.0.0.1' })
})

it('ignores the variables of a Slurm batch script and of a step on one node', () => {
  const { SLURM_STEP_ID, ...batch } = slurm
  expect(SLURM_STEP_ID).toBe('0')
  expect(read({}, batch)).toMatchObject({ nnodes: 1, nodeRank: 0 })
  const one = { ...slurm, SLURM_NNODES: '1', SLURM_STEP_NUM_TASKS: '1' }
  expect(read({}, one)).toMatchObject({ nnodes: 1, nodeRank: 0, host: '127.0.0.1' })
  expect(describeEnvironment(completeSettings({}, one))).toBeUndefined()
})

it('refuses several launchers on one node', () => {
  expect(() => read({}, { ...slurm, SLURM_STEP_NUM_TASKS: '4' })).toThrow(
    'Slurm runs 4 tasks (SLURM_STEP_NUM_TASKS) on 2 nodes: start tsrun once on each node',
  )
  const mpi = { OMPI_COMM_WORLD_SIZE: '4', OMPI_COMM_WORLD_LOCAL_SIZE: '2' }
  expect(() => read({}, mpi)).toThrow('Open MPI runs 2 processes on a node')
  expect(read({ nnodes: '1' }, mpi)).toMatchObject({ nnodes: 1 })
})

it('reads the number of the node from variables of Open MPI, Kubernetes and Volcano', () => {
  const mpi = {
    OMPI_COMM_WORLD_SIZE: '2',
    OMPI_COMM_WORLD_LOCAL_SIZE: '1',
    OMPI_COMM_WORLD_RANK: '1',
  }
  expect(read({ 'rdzv-endpoint': 'n0' }, mpi)).toMatchObject({ nnodes: 2, nodeRank: 1 })
  // On its second node, in a job of Slurm, where mpirun starts a daemon as a step.
  const daemon = { ...slurm, SLURM_STEP_NODELIST: 'n2', SLURM_STEP_NUM_TASKS: '1' }
  const ofDaemon = { ...daemon, SLURM_NODEID: '0', SLURM_JOB_ID: '1234', ...mpi }
  const node = { nnodes: 2, nodeRank: 1, host: 'n1', port: 29_500 }
  expect(read({}, ofDaemon)).toMatchObject(node)
  const pod = { JOB_COMPLETION_INDEX: '2', MASTER_ADDR: 'job-0.svc', MASTER_PORT: '23456' }
  const several = { nnodes: 2, nodeRank: 1, host: 'job-0.svc', port: 23_456 }
  expect(read({ nnodes: '3' }, pod)).toMatchObject({ ...several, nnodes: 3, nodeRank: 2 })
  const volcano = { MASTER_ADDR: 'job-0.svc', MASTER_PORT: '23456', VC_TASK_INDEX: '1' }
  expect(read({ nnodes: '2' }, volcano)).toMatchObject(several)
  expect(read({}, pod)).toMatchObject({ nnodes: 1, host: '127.0.0.1', port: 0 })
})

it('inside a rank, ignores the TSRUN_NNODES of the outer job', () => {
  const rank = { RANK: '0', WORLD_SIZE: '4', TSRUN_RUN_ID: 'run', TSRUN_NNODES: '2' }
  expect(read({}, rank).nnodes).toBe(1)
  expect(read({ 'node-rank': '0', 'rdzv-endpoint': 'n0' }, { TSRUN_NNODES: '2' }).nnodes).toBe(2)
})

describe('the flags of torchrun for several hosts', () => {
  it('set the same options as in torchrun', () => {
    const torchrun = { nnodes: '2:2', 'node-rank': '1', 'master-addr': 'n0', 'master-port': '1234' }
    const both = { nnodes: 2, nodeRank: 1, host: 'n0', port: 1234 }
    expect(read(torchrun)).toMatchObject(both)
    const pet = { PET_NNODES: '2', PET_NODE_RANK: '1', PET_RDZV_ENDPOINT: 'n0:1234' }
    expect(read({}, pet)).toMatchObject(both)
  })

  it.each([
    ['n0', 'n0', 29_500],
    ['10.0.0.1:1234', '10.0.0.1', 1234],
    ['[fd00::1]:1234', 'fd00::1', 1234],
    ['[fd00::1]', 'fd00::1', 29_500],
  ])('accept the endpoint %s', (endpoint, host, port) => {
    const values = { nnodes: '2', 'node-rank': '0', 'rdzv-endpoint': endpoint }
    expect(read(values)).toMatchObject({ host, port })
  })

  const two = { nnodes: '2', 'node-rank': '0', 'rdzv-endpoint': 'n0' }
  it.each<[FlagValues, string]>([
    [{ nnodes: '2' }, '--node-rank is missing: give each of the 2 nodes its own number, from 0'],
    [{ nnodes: '2', 'node-rank': '0' }, '--rdzv-endpoint is missing'],
    [{ ...two, 'node-rank': '2' }, '--node-rank is "2"; expected an integer from 0 to 1'],
    [{ ...two, nnodes: '0' }, '--nnodes is "0"'],
    [
      { ...two, nnodes: '4:1' },
      '--nnodes is "4:1"; expected an integer from 1 to 4096, or a range as in 2:4',
    ],
    [{ 'node-rank': '1' }, '--node-rank is "1"; expected an integer from 0 to 0'],
    [{ ...two, 'rdzv-endpoint': 'fd00::1' }, 'expected HOST:PORT'],
    [{ ...two, 'rdzv-endpoint': 'http://n0' }, 'expected HOST:PORT'],
    [{ ...two, 'rdzv-endpoint': 'n0:65536' }, 'expected HOST:PORT'],
    [{ ...two, 'rdzv-endpoint': 'n0:0' }, 'needs a port that all nodes know'],
    [{ ...two, 'rdzv-timeout': '0' }, '--rdzv-timeout is "0"'],
    [{ ...two, 'host-timeout': 'x' }, '--host-timeout is "x"'],
    [{ ...two, 'port-range': '5-4' }, '--port-range is "5-4"; expected two ports'],
    [{ ...two, nproc: '3', 'port-range': '5-6' }, '--port-range has 2 ports for 3 ranks'],
  ])('are refused: %j', (values, problem) => {
    expect(() => read(values)).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_USAGE', message: expect.stringContaining(problem) }),
    )
  })
})
