import { customSchedule, parseActions, parseSchedule } from '@tsrun/training/planning'
import { loadBackend, tf, type PipelineOptions } from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { examples, onRanks } from '../support/small-pipeline.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

describe('custom schedules', () => {
  const own = customSchedule(parseActions('0F1 0F0 0B1 0B0\n1F1 1B1 1F0 1B0'), 'last first')

  async function loss(options: PipelineOptions, chunks = 1): Promise<number> {
    const results = await onRanks(2, options, async (pipe) => {
      expect(pipe.chunks).toHaveLength(chunks)
      const { gradients, ...result } = await pipe.forwardBackward(examples(6))
      tf.dispose([...gradients.values()])
      return result
    })
    return results[0]!.loss
  }

  it('run like the built-in ones', async () => {
    expect(await loss({ schedule: own })).toBeCloseTo(
      await loss({ schedule: 'gpipe', microbatches: 2 }),
      5,
    )
  })

  it('are refused if they do not fit the pipeline', async () => {
    for (const text of ['0F0 0B0\n1F0 1B0\n2F0 2B0', '0F0 1F0 1B0 0B0']) {
      const options = { schedule: parseSchedule(text) }
      await expect(onRanks(2, options, () => Promise.resolve())).rejects.toEqual(
        failure('ERR_TSR_ARGUMENT', /a list for each of the 2 ranks/),
      )
    }
  })

  it('are refused if they are impossible, with rank, place and reason', async () => {
    const schedule = {
      actions: [
        ['0F0', '0B0'],
        ['1B0', '1F0'],
      ],
    }
    await expect(onRanks(2, { schedule }, () => Promise.resolve())).rejects.toEqual(
      failure('ERR_TSR_SCHEDULE', /rank 1, action 0: 1B0 comes before its forward/),
    )
  })

  it('may place the stages on any rank: in reverse, or as a V', async () => {
    const wanted = await loss({ schedule: 'gpipe', microbatches: 2 })
    const backwards = {
      actions: [
        ['1F0', '1F1', '1B0', '1B1'],
        ['0F0', '0F1', '0B0', '0B1'],
      ],
    }
    expect(await loss({ schedule: backwards })).toBeCloseTo(wanted, 5)
    const v = parseSchedule('0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1\n1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1')
    expect(v.placement).toEqual([0, 1, 1, 0])
    expect(await loss({ schedule: v }, 2)).toBeCloseTo(wanted, 5)
  })

  it('may have several stages per rank', async () => {
    const looped = customSchedule(
      parseActions('0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0\n1F0 1F1 3F0 3B0 3F1 3B1 1B1 1B0'),
    )
    expect(await loss({ schedule: looped }, 2)).toBeCloseTo(
      await loss({ schedule: 'gpipe', microbatches: 2 }),
      5,
    )
  })

  it('need a batch with an example for every micro-batch', async () => {
    const run = onRanks(2, { schedule: own }, async (pipe) => pipe.forwardBackward(examples(1)))
    await expect(run).rejects.toEqual(failure('ERR_TSR_ARGUMENT', /batch.size is 1/))
  })
})
