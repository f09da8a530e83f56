import { runWorld } from '@tsrun/distributed'
import { allReduceTensor, loadBackend, tf } from '@tsrun/training'
import { problemOf } from '../../../packages/training/src/parallel/device-group.ts'
import { errorOf } from '../../distributed/support/outcome.ts'

const given = { ...process.env }
afterEach(() => {
  process.env = { ...given }
})

describe('a group whose ranks have no GPUs', () => {
  it('reduces tensors in the memory of the host', async () => {
    process.env['TSRUN_NCCL'] = '1'
    process.env['TSRUN_LOG_LEVEL'] = 'silent'
    await loadBackend('cpu')
    await runWorld({ size: 2, seed: 1 }, async (group) => {
      for (let i = 0; i < 2; i++) {
        const own = tf.tensor([group.rank, 1])
        const reducing = allReduceTensor(group, own)
        own.dispose()
        const sum = await reducing
        expect([...sum.dataSync()]).toEqual([1, 2])
        sum.dispose()
      }
    })
  })

  it('is refused with another value of TSRUN_NCCL than 0 and 1', async () => {
    process.env['TSRUN_NCCL'] = 'yes'
    await loadBackend('cpu')
    await runWorld({ size: 2, seed: 1 }, async (group) => {
      const own = tf.tensor([1])
      const error = await errorOf(() => allReduceTensor(group, own))
      expect(error).toMatchObject({ code: 'ERR_TSR_ENVIRONMENT' })
      expect(error?.message).toContain('TSRUN_NCCL')
      own.dispose()
    })
  })
})

describe('what keeps the ranks of a group from NCCL', () => {
  const rank = (device: string, library = 'NCCL 2.27.7') => ({ device: `host ${device}`, library })

  it.each([
    ['nothing, with a GPU for each', [rank('0000:01:00.0'), rank('0000:02:00.0')], undefined],
    [
      'a rank without it',
      [rank('0000:01:00.0'), { problem: 'its tensors are on wasm' }],
      'rank 7: its tensors are on wasm',
    ],
    ['one GPU for two', [rank('0000:01:00.0'), rank('0000:01:00.0')], 'ranks 4 and 7 share a GPU'],
    [
      'another version',
      [rank('0000:01:00.0'), rank('0000:02:00.0', 'NCCL 2.28.3')],
      'rank 7 has NCCL 2.28.3, rank 4 NCCL 2.27.7',
    ],
  ])('is %s', (_, facts, problem) => {
    expect(problemOf(facts, [4, 7])).toBe(problem)
  })
})
