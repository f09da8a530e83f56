import { initProcessGroup, isInitialized } from '@tsrun/distributed'
import { chooseEngine } from '../../../internals/distributed/groups.ts'

/** Without types, as in a program of JavaScript. */
const join = (options: unknown) => initProcessGroup(options as undefined)

it.each([
  [{ engine: 'fast' }, /engine is "fast"; expected one of "worker", "inline", "auto"/],
  [{ engine: null }, /engine is null/],
  [
    { transport: 'gloo' },
    /transport is "gloo"; expected one of "auto", "shared-memory", "tcp", "node", "mpi", "fake"/,
  ],
  [
    { backend: 'gloo' },
    /options is an object with the unknown key "backend"; .* transport, engine, .* token, tls/,
  ],
  [{ tranport: 'tcp' }, /did you mean transport\?/],
  [{ timeout: '5' }, /timeout is "5"; expected milliseconds above 0/],
  [{ arena: 1024 }, /arena is 1024; expected from 2 MiB to less than 4 GiB, in bytes/],
  [{ worldSize: 0 }, /worldSize is 0; expected a whole number from 1/],
  [{ store: {} }, /store is an empty object; expected a store/],
  ['gloo', /options is "gloo"; expected an object with rank, worldSize/],
  [null, /options is null/],
])('initProcessGroup refuses %j, and can be called again', async (options, message) => {
  const refusal = expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }) as Error
  const joining = join(options)
  await expect(joining).rejects.toEqual(refusal)
  await expect(joining).rejects.toThrow(message)
  expect(isInitialized()).toBe(false)
})

it('initProcessGroup accepts options that are undefined', async () => {
  const known = { transport: undefined, engine: undefined }
  const group = await join({ ...known, arena: 4 * 1024 * 1024, timeout: 60_000 })
  expect(group.size).toBe(1)
  await group.destroy()
})

const job = (worldSize: number, localWorldSize: number) => ({ worldSize, localWorldSize })

describe('the choice of engine by the option `auto`', () => {
  it.each([
    ['two ranks on two cores', job(2, 2), 'tcp', 2, 'inline'],
    ['four ranks on two cores', job(4, 4), 'tcp', 2, 'inline'],
    ['three ranks on four cores', job(3, 3), 'tcp', 4, 'inline'],
    ['two ranks on four cores', job(2, 2), 'tcp', 4, 'worker'],
    ['a rank alone on one core', job(1, 1), 'tcp', 1, 'inline'],
    ['two hosts, as a computing rank would delay messages', job(4, 2), 'tcp', 2, 'worker'],
    ['node:net, which cannot block', job(2, 2), 'node', 2, 'worker'],
    ['ranks of mpirun', job(2, 2), 'mpi', 2, 'worker'],
    ['a launcher that does not name the ranks of this host', undefined, 'tcp', 2, 'worker'],
  ] as const)('is correct for %s', (_, environment, transport, cores, expected) => {
    expect(chooseEngine({ environment, transport, cores }, 'auto')).toBe(expected)
  })

  it('depends on the number of bound ranks that share cores', () => {
    const context = { environment: job(4, 4), transport: 'tcp', cores: 2 } as const
    expect(chooseEngine({ ...context, coreRanks: 1 }, 'auto')).toBe('worker')
    expect(chooseEngine({ ...context, coreRanks: 2 }, 'auto')).toBe('inline')
  })
})

describe('the default choice of engine', () => {
  it.each([
    ['more ranks than cores', job(4, 4), 'tcp', 2, 'worker'],
    ['fifteen ranks on two cores', job(15, 15), 'tcp', 2, 'worker'],
    ['eight ranks for each core', job(16, 16), 'tcp', 2, 'inline'],
    ['eight ranks for each core of each host', job(32, 16), 'tcp', 2, 'inline'],
    ['many ranks over node:net, which cannot block', job(16, 16), 'node', 2, 'worker'],
  ] as const)('is correct for %s', (_, environment, transport, cores, expected) => {
    expect(chooseEngine({ environment, transport, cores }, undefined)).toBe(expected)
  })
})

it('initProcessGroup refuses an unknown value of TSRUN_NATIVE', async () => {
  process.env['TSRUN_NATIVE'] = 'of'
  try {
    await expect(join({})).rejects.toMatchObject({
      code: 'ERR_TSR_ENVIRONMENT',
      message: expect.stringMatching(/TSRUN_NATIVE is "?of"?.*expected "on" or "off"/) as string,
    })
  } finally {
    delete process.env['TSRUN_NATIVE']
  }
})
