import { jest } from '@jest/globals'
import { resultIn, runScript } from '../launcher/support/script.ts'
import { killLeftovers } from '../launcher/support/tsrun.ts'

jest.setTimeout(240_000)
afterEach(killLeftovers)

async function train(nproc: number, ...flags: string[]): Promise<Record<string, number>> {
  const script = 'examples/data-parallel.ts'
  const small = '--width 128 --images 2048 --batch 256 --epochs 1 --lr 0.003'.split(' ')
  return resultIn(await runScript(nproc, script, ...small, ...flags))
}

describe('data-parallel.ts', () => {
  it('is as accurate with two ranks as with one, and sends more operations with smaller buckets', async () => {
    const [alone, two] = [await train(1), await train(2)]
    expect(two['accuracy']).toBeCloseTo(alone['accuracy']!, 2)
    expect(two['accuracy']).toBeGreaterThan(0.3)
    expect(alone).toMatchObject({ collectives: 0, bytes: 0 })
    const smaller = await train(2, '--bucket', '100000')
    expect(smaller['collectives']).toBeGreaterThan(two['collectives']!)
    expect(smaller['bytes']).toBe(two['bytes'])
    const late = await train(2, '--overlap', 'off')
    expect(late).toMatchObject({ collectives: 1, bytes: two['bytes'], accuracy: two['accuracy'] })
    expect(late['during']).toBe(false)
    // and as bfloat16, half the bytes
    const half = await train(2, '--wire', 'bfloat16')
    expect(half['bytes']! / two['bytes']!).toBeCloseTo(0.5, 3)
    expect(half['accuracy']).toBeGreaterThan(0.3)
  })

  it.each([
    ['--engine', 'inline', false],
    ['--overlap', 'on', true],
  ] as const)('says when buckets are exchanged: %s %s', async (flag, value, during) => {
    const transport = during ? 'tcp' : 'shared-memory'
    const flags = ['--images', '256', '--layers', '4', '--width', '32', '--transport', transport]
    const stdout = await runScript(2, 'examples/data-parallel.ts', ...flags, flag, value)
    const shown = stdout.replace(/\s+/g, ' ')
    expect(resultIn(stdout)['during']).toBe(during)
    expect(shown).toContain(
      during ? 'starts during the backward pass' : 'after the backward pass: ',
    )
  })

  it('trains with batches of fewer images than ranks', async () => {
    const flags = ['--batch', '3', '--images', '30']
    const { ranks } = resultIn(await runScript(4, 'examples/data-parallel.ts', ...flags))
    expect(ranks).toBe(4)
  })
})
