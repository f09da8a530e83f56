import { jest } from '@jest/globals'
import { resultIn, runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(900_000)
afterEach(killLeftovers)

async function train(nproc: number, ...flags: string[]): Promise<Record<string, number>> {
  return resultIn(await runScript(nproc, 'examples/cnn.ts', ...flags))
}

describe('cnn.ts', () => {
  it('trains to the same loss on 1 and 3 ranks, even with dropout', async () => {
    const flags = ['--images', '1280', '--epochs', '1']
    const [alone, three] = [await train(1, ...flags), await train(3, ...flags)]
    expect(three['loss']).toBeCloseTo(alone['loss']!, 3)
    expect(Math.abs(three['accuracy']! - alone['accuracy']!)).toBeLessThan(0.01)
  })

  it('recognizes 98.5 % of the test digits', async () => {
    const { accuracy } = await train(2)
    expect(accuracy).toBeGreaterThan(0.985)
  })
})
