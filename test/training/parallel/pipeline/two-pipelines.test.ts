import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { loadBackend, pipeline, SGD, shardedMLP, tf, type Pipeline } from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { examples, onRanks } from '../support/small-pipeline.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

const STEPS = 3

function make(seed: number, group: ProcessGroup): Pipeline {
  const model = shardedMLP({ layers: 4, inputs: 8, hidden: 10, outputs: 3, seed })
  return pipeline(model, group, { microbatches: 2, optimizer: new SGD({ learningRate: 0.1 }) })
}

/** The losses of pipelines of these seeds, each over a group of its own size of 2. */
async function wanted(seeds: readonly number[]): Promise<number[][]> {
  const losses: number[][] = []
  for (const seed of seeds) {
    const [own] = await runWorld({ size: 2, seed: 1 }, async (group) => {
      const pipe = make(seed, group)
      const seen: number[] = []
      for (let step = 0; step < STEPS; step++) seen.push((await pipe.step(examples(8))).loss)
      pipe.dispose()
      return seen
    })
    losses.push(own!)
  }
  return losses
}

describe('two pipelines', () => {
  it('over one group refuse a call while another call runs, which continues', async () => {
    const [[first]] = (await wanted([1])) as [[number]]
    const losses = await runWorld({ size: 2, seed: 1 }, async (group) => {
      const [a, b] = [make(1, group), make(2, group)]
      const running = a.step(examples(8))
      await expect(b.step(examples(8))).rejects.toEqual(
        failure('ERR_TSR_PIPELINE_BUSY', /: step of .* during its step/),
      )
      const { loss } = await running
      expect((await b.evaluate(examples(8))).loss).toBeGreaterThan(0)
      for (const pipe of [a, b]) pipe.dispose()
      return loss
    })
    expect(losses).toEqual([first, first])
  })

  it('over one group, in turn, train as each would alone', async () => {
    const ranks = await runWorld({ size: 2, seed: 1 }, async (group) => {
      const pipes = [make(1, group), make(2, group)]
      const losses: number[][] = [[], []]
      for (let step = 0; step < STEPS; step++) {
        for (const [i, pipe] of pipes.entries()) {
          losses[i]!.push((await pipe.step(examples(8))).loss)
        }
      }
      for (const pipe of pipes) pipe.dispose()
      return losses
    })
    const alone = await wanted([1, 2])
    expect(ranks).toEqual([alone, alone])
  })

  it('over two groups, at the same time, train as each would alone', async () => {
    const ranks = await runWorld({ size: 2, seed: 1 }, async (group) => {
      const pipes = [make(1, group), make(2, (await group.split(0))!)]
      const losses: number[][] = [[], []]
      for (let step = 0; step < STEPS; step++) {
        const both = await Promise.all(pipes.map((pipe) => pipe.step(examples(8))))
        both.forEach(({ loss }, i) => losses[i]!.push(loss))
      }
      for (const pipe of pipes) pipe.dispose()
      return losses
    })
    const alone = await wanted([1, 2])
    expect(ranks).toEqual([alone, alone])
  })
})

describe('dispose()', () => {
  it('does nothing the second time, and refuses all later calls', async () => {
    const before = tf.memory().numTensors
    await onRanks(2, { optimizer: new SGD({ learningRate: 0.1 }) }, async (pipe) => {
      await pipe.step(examples(8))
      pipe.dispose()
      for (const call of ['step', 'forwardBackward', 'evaluate'] as const) {
        await expect(pipe[call](examples(8))).rejects.toEqual(
          failure('ERR_TSR_ARGUMENT', RegExp(`one that was disposed before ${call}`)),
        )
      }
      // once more: onRanks disposes it too
    })
    expect(tf.memory().numTensors).toBe(before)
  })

  it('is refused during a call, which continues', async () => {
    await onRanks(2, { optimizer: new SGD({ learningRate: 0.1 }) }, async (pipe) => {
      const step = pipe.step(examples(8))
      expect(() => {
        pipe.dispose()
      }).toThrow(failure('ERR_TSR_PIPELINE_BUSY', /: dispose of .* during its step/))
      expect((await step).loss).toBeGreaterThan(0)
      expect((await pipe.step(examples(8))).loss).toBeGreaterThan(0)
    })
  })
})
