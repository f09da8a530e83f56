import { firstOfNodeList, launchedEnvironment, launchedPlace } from '@tsrun/core'

/** A task of `srun --nodes 3 --ntasks 5`, on the second node. */
const slurm = {
  SLURM_JOB_ID: '1234',
  SLURM_STEP_ID: '1',
  SLURM_PROCID: '3',
  SLURM_LOCALID: '1',
  SLURM_NODEID: '1',
  SLURM_NTASKS: '8',
  SLURM_STEP_NUM_TASKS: '5',
  SLURM_STEP_TASKS_PER_NODE: '2(x2),1',
  SLURM_JOB_NODELIST: 'n[0-2]',
  SLURM_STEP_NODELIST: 'n[0-2]',
}

/** A process of `mpirun -n 4`, on the second of two hosts. */
const openMpi = {
  OMPI_COMM_WORLD_RANK: '2',
  OMPI_COMM_WORLD_SIZE: '4',
  OMPI_COMM_WORLD_LOCAL_RANK: '0',
  OMPI_COMM_WORLD_LOCAL_SIZE: '2',
  PMIX_NAMESPACE: '1487208449',
}

const hydra = { PMI_RANK: '1', PMI_SIZE: '2', MPI_LOCALRANKID: '1', MPI_LOCALNRANKS: '2' }

it.each([
  ['n1', 'n1'],
  ['n[1-3,5],gpu07', 'n1'],
  ['gpu[007-012]', 'gpu007'],
  ['rack[3,5]-node[2-4]', 'rack3-node2'],
  ['login,n[1-2]', 'login'],
  ['', undefined],
])('the first host of %j is %j', (list, host) => {
  expect(firstOfNodeList(list)).toBe(host)
})

describe('the variables of torchrun', () => {
  it('are derived from a step of Slurm', () => {
    expect(launchedEnvironment(slurm)).toEqual({
      ...{ RANK: '3', WORLD_SIZE: '5', LOCAL_RANK: '1', LOCAL_WORLD_SIZE: '2' },
      ...{ NODE_RANK: '1', GROUP_RANK: '1', MASTER_ADDR: 'n0', MASTER_PORT: '22341' },
    })
    const last = { ...slurm, SLURM_PROCID: '4', SLURM_LOCALID: '0', SLURM_NODEID: '2' }
    expect(launchedEnvironment(last)).toMatchObject({ LOCAL_WORLD_SIZE: '1', NODE_RANK: '2' })
  })

  it('are derived from Open MPI and Hydra, on one host', () => {
    const one = { ...openMpi, OMPI_COMM_WORLD_LOCAL_SIZE: '4', OMPI_COMM_WORLD_LOCAL_RANK: '2' }
    expect(launchedEnvironment(one)).toEqual({
      ...{ RANK: '2', WORLD_SIZE: '4', LOCAL_RANK: '2', LOCAL_WORLD_SIZE: '4' },
      ...{ MASTER_ADDR: '127.0.0.1', MASTER_PORT: expect.stringMatching(/^2\d{4}$/) },
    })
    const other = launchedEnvironment({ ...one, PMIX_NAMESPACE: '1487208450' })
    expect(other['MASTER_PORT']).not.toBe(launchedEnvironment(one)['MASTER_PORT'])
    expect(launchedEnvironment(hydra)).toEqual({
      ...{ RANK: '1', WORLD_SIZE: '2', LOCAL_RANK: '1', LOCAL_WORLD_SIZE: '2' },
      ...{ MASTER_ADDR: '127.0.0.1', MASTER_PORT: '29500' },
    })
  })

  it('need the host of rank 0 from the caller if the launcher does not name it', () => {
    expect(() => launchedEnvironment(openMpi)).toThrow(
      'MASTER_ADDR is not set; expected the host of rank 0, the same on all ranks, because this ' +
        'launcher does not say which one it is (mpirun -x MASTER_ADDR=node0, ',
    )
    const told = { ...openMpi, MASTER_ADDR: 'n7', MASTER_PORT: '1234' }
    expect(launchedEnvironment(told)).toMatchObject({ MASTER_ADDR: 'n7', MASTER_PORT: '1234' })
  })

  it('are derived from mpirun if it runs inside a job of Slurm', () => {
    const daemon = { SLURM_PROCID: '0', SLURM_STEP_NUM_TASKS: '1', SLURM_STEP_NODELIST: 'n1' }
    expect(launchedEnvironment({ ...slurm, ...daemon, ...openMpi })).toMatchObject({
      ...{ RANK: '2', WORLD_SIZE: '4', MASTER_ADDR: 'n0' },
      MASTER_PORT: launchedEnvironment({ ...openMpi, MASTER_ADDR: 'n0' })['MASTER_PORT'],
    })
    // With `srun --mpi=pmi2` both say the same.
    const both = { ...slurm, PMI_RANK: '3', PMI_SIZE: '5' }
    expect(launchedEnvironment(both)).toEqual(launchedEnvironment(slurm))
  })

  it.each([
    ['tsrun or torchrun has set them', { ...slurm, RANK: '0', WORLD_SIZE: '2' }],
    [
      'the process is alone in its step',
      { ...slurm, SLURM_PROCID: '0', SLURM_STEP_NUM_TASKS: '1' },
    ],
    ['it is a batch script', { SLURM_PROCID: '0', SLURM_NTASKS: '8', SLURM_JOB_ID: '1' }],
    ['its rank is out of range', { ...hydra, PMI_RANK: '2' }],
    ['no launcher has started it', {}],
  ])('are not derived if %s', (_, env) => {
    expect(launchedEnvironment(env)).toEqual({})
  })
})

it('launchedPlace() returns rank 0 of 1 for a process alone in its job', () => {
  expect(launchedPlace({ PMI_RANK: '0', PMI_SIZE: '1' })).toMatchObject({ rank: 0, worldSize: 1 })
})
