import { jest } from '@jest/globals'
import { missing, reportsIn, runCases, Compiled } from '../support/nccl.ts'

jest.setTimeout(120_000)

const describeIt = missing === undefined ? describe : describe.skip

if (missing !== undefined) {
  it(`skipped: no ${missing}`, () => {
    expect(missing).toBeDefined()
  })
}

interface Trained {
  readonly byHand: unknown
  readonly whole: { readonly steps: number[][]; readonly values: number[][] }
  readonly isLoaded: boolean
}

const numbersOf = ({ steps, values }: Trained['whole']): number[] => [...steps, ...values].flat()

describeIt('collectives on the memory of devices, by a stand-in for NCCL', () => {
  const compiled = new Compiled()
  let library = ''
  beforeAll(() => {
    library = compiled.standIn('nccl-stand-in')
  })
  afterAll(() => {
    compiled.remove()
  })

  it('reduce and train as those in the memory of the host do', async () => {
    const env = { TSRUN_NCCL_LIBRARY: library, TSRUN_LOG_LEVEL: 'info' }
    const cases = ['reduce', 'train']
    const jobs = [
      await runCases({ ...env, TSRUN_NCCL: '1' }, ...cases),
      await runCases({ ...env, TSRUN_NCCL: '0' }, ...cases),
    ]
    const [onDevice, staged] = jobs.map(reportsIn)
    for (const rank of [0, 1]) {
      const { reduce, train } = onDevice![rank] as unknown as { reduce: object; train: Trained }
      const host = staged![rank] as unknown as { reduce: object; train: Trained }
      expect(reduce).toEqual({ ...host.reduce, isLoaded: true })
      expect(reduce).toMatchObject({
        left: 0,
        avg: [
          [3, 1],
          [1.5, 2, -3],
        ],
        large: [150_000, 3],
      })
      // With as many ranks, and without a factor, the bits are the same.
      expect(train.byHand).toEqual(host.train.byHand)
      const expected = numbersOf(host.train.whole)
      const largest = Math.max(
        ...numbersOf(train.whole).map((value, i) => Math.abs(value - expected[i]!)),
      )
      expect(largest).toBeLessThan(1e-5)
      expect([train.isLoaded, host.train.isLoaded]).toEqual([true, false])
    }
    expect(jobs[0]!.stderr).toContain('group world reduces tensors on its GPUs with NCCL 2.')
    expect(jobs[1]!.stderr).not.toContain('NCCL')
  })

  it('fail with what the library says, and on the other ranks after the time-out', async () => {
    const env = { TSRUN_NCCL: '1', TSRUN_NCCL_LIBRARY: library, NCCL_STAND_IN_FAULT: '1:1:error' }
    const job = await runCases(env, 'fail')
    const [waiting, failing] = reportsIn(job).map(({ fail }) => fail as { message?: string }[])
    const failed = {
      code: 'ERR_TSR_NCCL',
      message: expect.stringContaining(
        'Rank 1: a collective of NCCL in group world failed: remote process exited or there was',
      ) as string,
    }
    // the communicator is gone
    expect(failing).toEqual([{ values: [1] }, failed, failed])
    const late = {
      code: 'ERR_TSR_OPERATION_TIMEOUT',
      message: expect.stringContaining(
        'Rank 0: allReduce over NCCL of group world timed out after 2000 ms; waiting for rank 1',
      ) as string,
    }
    expect(waiting).toEqual([{ values: [1] }, late, late])
  })

  it.each([
    ['is not there', () => '/nowhere/libnccl.so.2', 'cannot open shared object file'],
    [
      'takes the memory of GPUs only',
      () => compiled.standIn('nccl-for-gpus', '-Dtsrun_test_takes_host_memory=another_name'),
      'takes tensors of a GPU for NCCL',
    ],
  ])('are not used if the library %s', async (_, path, reason) => {
    const job = await runCases({ TSRUN_NCCL: '1', TSRUN_NCCL_LIBRARY: path() }, 'reduce')
    expect(reportsIn(job)[0]!['reduce']).toMatchObject({
      sum: [
        [3, 1],
        [3, 4, -6],
      ],
      left: 0,
    })
    const [line, ...others] = job.stderr.trim().split('\n')
    expect(others).toEqual([])
    expect(line).toMatch(/group world does without NCCL \(rank 0: .*\): its tensors pass through/)
    expect(line).toContain(reason)
  })
})
