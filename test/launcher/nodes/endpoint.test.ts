import type { Names } from '@tsrun/store'
import { findStoreAddress } from '../../internals/launcher/nodes.ts'
import type { JobContext } from '../../internals/launcher/job.ts'

const options = { host: 'n0', port: 29_500, timeout: 60_000 }

/** A name that leads to these addresses, one after the other; '' stands for none. */
function lookups(...answers: readonly string[]): Names {
  let turn = 0
  return {
    lookup: () => {
      const address = answers[Math.min(turn++, answers.length - 1)]!
      if (address !== '') return Promise.resolve([address])
      return Promise.reject(Object.assign(new Error('getaddrinfo'), { code: 'EAI_AGAIN' }))
    },
    own: () => ['10.0.0.1'],
  }
}

function look(
  isSaid: boolean,
  names: Names,
  { timeout = options.timeout, stop = new AbortController().signal } = {},
): ReturnType<typeof findStoreAddress> {
  const context = { announcer: { say: () => undefined }, interrupts: { stop } }
  return findStoreAddress({ ...options, timeout }, isSaid, context as unknown as JobContext, names)
}

const here = { listen: '10.0.0.1', publish: '10.0.0.1' }

describe('node 0 resolves the address of the store', () => {
  it('until the name resolves to this host', async () => {
    expect(await look(true, lookups('', '10.0.0.9', '10.0.0.1'))).toEqual(here)
  })

  it('until the name resolves, if no option says which host is node 0', async () => {
    expect(await look(false, lookups('', '10.0.0.1'))).toEqual(here)
    expect(await look(false, lookups('', '10.0.0.9', '10.0.0.1'))).toBeUndefined()
  })

  it('until --rdzv-timeout expires', async () => {
    await expect(look(true, lookups('10.0.0.9'), { timeout: 10 })).rejects.toMatchObject({
      code: 'ERR_TSR_RENDEZVOUS_TIMEOUT',
      facts: { missing: 'the name of node 0: n0 (10.0.0.9) is no address of this host' },
    })
  })

  it('until the job is stopped, even if the resolver does not answer', async () => {
    const stop = new AbortController()
    const silent: Names = { lookup: () => new Promise(() => undefined), own: () => [] }
    const looking = look(true, silent, { stop: stop.signal })
    stop.abort()
    await expect(looking).rejects.toMatchObject({ code: 'ERR_TSR_ABORTED' })
  })
})
