import { initProcessGroup, isInitialized } from '@tsrun/distributed'

/** Without types, as in a program of JavaScript. */
const join = (options: unknown) => initProcessGroup(options as undefined)

it.each([
  [{ engine: 'fast' }, /engine is "fast"; expected one of "worker", "inline", "auto"/],
  [{ engine: null }, /engine is null/],
  [
    { transport: 'gloo' },
    /transport is "gloo"; expected one of "auto", "shared-memory", "tcp", "node", "mpi"/,
  ],
  [
    { backend: 'gloo' },
    /options is an object with the unknown key "backend"; .* transport, engine, .* stallWarning, debug/,
  ],
  [{ tranport: 'tcp' }, /did you mean transport\?/],
  [{ stallWarning: 0 }, /stallWarning is 0; expected milliseconds above 0/],
  [{ debug: 'on' }, /debug is "on"; expected "off" or "detail"/],
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

it('initProcessGroup takes options of diagnosis, and those that are left undefined', async () => {
  const known = { stallWarning: 1000, debug: 'off', transport: undefined, engine: undefined }
  const group = await join({ ...known, arena: 4 * 1024 * 1024, timeout: 60_000 })
  expect(group.size).toBe(1)
  await group.destroy()
})
