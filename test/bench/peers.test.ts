import { findOpenMpi, findTorch } from '../../scripts/bench/collectives/systems.mjs'

describe('an absent peer is skipped, with the reason', () => {
  it('torch without TSRUN_BENCH_PYTHON', async () => {
    expect(await findTorch({})).toEqual({
      systems: [],
      skipped: 'no torch (set TSRUN_BENCH_PYTHON)',
    })
  })

  it('torch if TSRUN_BENCH_PYTHON is not a Python with torch', async () => {
    const { systems, skipped } = await findTorch({ TSRUN_BENCH_PYTHON: '/nonexistent/python' })
    expect(systems).toEqual([])
    expect(skipped).toMatch(/no torch \(TSRUN_BENCH_PYTHON=\/nonexistent\/python/)
  })

  it('Open MPI without mpirun on the PATH', async () => {
    expect(await findOpenMpi('/nonexistent', { PATH: '/nonexistent' })).toEqual({
      systems: [],
      skipped: 'no Open MPI (no mpirun of Open MPI on the PATH)',
    })
  })
})
