import { endJobs, startProgram } from '../../distributed/support/job.ts'

afterEach(endJobs)

describe('the transport mpi without mpirun', () => {
  it('gives a world of one rank, and needs no libmpi', async () => {
    const env = { TSRUN_TRANSPORT: 'mpi', TSRUN_LIBMPI: '/nowhere/libmpi.so' }
    const alone = startProgram('alone.mjs', env)
    expect((await alone.end()).code).toBe(0)
  })

  it('refuses ranks that another launcher has started', async () => {
    const env = {
      ...{ TSRUN_TRANSPORT: 'mpi', RANK: '0', WORLD_SIZE: '2' },
      ...{ MASTER_ADDR: '127.0.0.1', MASTER_PORT: '1' },
    }
    const said = await startProgram('join.mjs', env).hear('failed')
    expect(said).toMatchObject({ code: 'ERR_TSR_MPI_LAUNCH' })
    expect(said.message).toContain('mpirun')
  })

  it('names the command that installs a missing @tsrun/mpi, before the rank joins', async () => {
    const hidden = new URL('../../fixtures/without-package.mjs', import.meta.url).href
    const env = {
      ...{ TSRUN_TRANSPORT: 'mpi', PMI_RANK: '0', PMI_SIZE: '2' },
      WITHOUT: '@tsrun/mpi',
    }
    const said = await startProgram('join.mjs', env, ['--import', hidden]).hear('failed')
    expect(said).toMatchObject({ code: 'ERR_TSR_PACKAGE_MISSING' })
    expect(said.message).toContain('The transport mpi needs a package that is not installed')
    expect(said.message).toContain('`npm install @tsrun/mpi`')
  })

  it('reports that libmpi is missing', async () => {
    const env = {
      ...{ TSRUN_TRANSPORT: 'mpi', TSRUN_LIBMPI: '/nowhere/libmpi.so' },
      ...{ PMI_RANK: '0', PMI_SIZE: '2' },
    }
    const said = await startProgram('join.mjs', env).hear('failed')
    expect(said).toMatchObject({ code: 'ERR_TSR_TRANSPORT_UNAVAILABLE' })
    expect(said.message).toContain('/nowhere/libmpi.so')
  })

  it('reports that it needs koffi', async () => {
    const env = { TSRUN_TRANSPORT: 'mpi', TSRUN_NATIVE: 'off', PMI_RANK: '0', PMI_SIZE: '2' }
    const said = await startProgram('join.mjs', env).hear('failed')
    expect(said).toMatchObject({ code: 'ERR_TSR_TRANSPORT_UNAVAILABLE' })
    expect(said.message).toContain('TSRUN_NATIVE')
  })
})
