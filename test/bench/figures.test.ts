import { jest } from '@jest/globals'
import { bench } from './support/bench.ts'

jest.setTimeout(240_000)

/** Runs a command of the benchmarks with --json; its rows. */
async function rowsOf(args: string[], env: NodeJS.ProcessEnv = {}): Promise<object[]> {
  const { code, stdout, stderr } = await bench([...args, '--json'], env)
  expect({ code, stderr }).toEqual({ code: 0, stderr })
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as object)
}

const number: unknown = expect.any(Number)

it('ping-pong measures ours, and C where there is a compiler', async () => {
  const few = ['ping-pong', '--runs', '1', '--repeats', '50']
  const rows = await rowsOf([...few, '--transport', 'tcp,shared-memory'])
  const ours = rows.slice(-2)
  expect(ours).toMatchObject([
    { system: 'tsrun tcp inline', bytes: 64, p50Us: number },
    { system: 'tsrun shared-memory inline', bytes: 64, p50Us: number },
  ])
  const without = await rowsOf(few, { PATH: '/nonexistent' })
  expect(without).toMatchObject([{ system: 'tsrun tcp inline', timesC: null }])
})

it('kernels measures ours without a compiler too', async () => {
  const few = ['kernels', '--runs', '1', '--sizes', '64KiB']
  expect(await rowsOf(few)).toMatchObject([{ array: '64 KiB', kernelGBs: number }])
  expect(await rowsOf(few, { PATH: '/nonexistent' })).toMatchObject([
    { array: '64 KiB', kernelGBs: number, cGBs: null, ratio: null },
  ])
})

it('overlap gives the share of the communication that is hidden', async () => {
  const few = ['overlap', '--runs', '1', '--repeats', '2', '--size', '1MiB']
  const rows = await rowsOf([...few, '--transport', 'tcp'])
  expect(rows).toMatchObject([
    { transport: 'tcp', ranks: 2, communicationMs: number, bothMs: number, hidden: number },
  ])
})

it('memory gives growth, and what peers cost', async () => {
  const rows = await rowsOf(['memory', '--operations', '1000', '--peers', '2'])
  expect(rows).toMatchObject([
    { transport: 'shared-memory', growthMiB: number, peers: 2, peersMiB: number },
    { transport: 'tcp', growthMiB: number, peers: 2, peersMiB: number },
  ])
})

it.each([
  [['ping-pong', '--bytes', 'few'], '"few" is not a size'],
  [['kernels', '--sizes', '2GiB'], '--sizes: at most 1GiB'],
  [['overlap', '--size', '3B'], '--size: float32, up to 512MiB'],
  [['memory', '--operations', '1'], '--operations must be an integer from 1000'],
  [['report', '--also', 'weather'], '--also: unknown "weather"'],
])('refuses %j', async (args, message) => {
  const { code, stderr } = await bench(args)
  expect({ code, stderr }).toEqual({ code: 2, stderr })
  expect(stderr).toContain(message)
})
