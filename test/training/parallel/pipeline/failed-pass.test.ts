import { runWorld } from '@tsrun/distributed'
import { loadBackend, pipeline, SGD, shardedMLP } from '@tsrun/training'
import { exampleBatch } from '../support/reference.ts'

const model = shardedMLP({ layers: 4, inputs: 8, hidden: 10, outputs: 3 })
const examples = { size: 8, ...exampleBatch(0, 8, 8, 3) }

async function codeOf(step: Promise<unknown>): Promise<unknown> {
  return await step.then(
    () => undefined,
    (error: unknown) => (error as { code: string }).code,
  )
}

describe('a pipeline', () => {
  it('refuses the next pass after a failed one, whose messages it would receive', async () => {
    await loadBackend('wasm')
    let end = (): void => undefined
    const ended = new Promise<void>((resolve) => {
      end = resolve
    })
    const [codes] = await runWorld({ size: 2, timeout: 400 }, async (group) => {
      const pipe = pipeline(model, group, { optimizer: new SGD({ learningRate: 0.1 }) })
      if (group.rank === 1) {
        await ended
        return []
      }
      const step = () => codeOf(pipe.step(examples))
      const seen = [await step(), await step(), await codeOf(pipe.evaluate(examples))]
      end()
      return seen
    })
    expect(codes).toEqual([
      'ERR_TSR_OPERATION_TIMEOUT',
      'ERR_TSR_PIPELINE_FAILED',
      'ERR_TSR_PIPELINE_FAILED',
    ])
  })
})
