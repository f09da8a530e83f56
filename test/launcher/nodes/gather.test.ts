import { Deadline } from '@tsrun/core'
import { memoryStore } from '@tsrun/store'
import { nextNode, keys } from '../../internals/launcher/nodes.ts'

const never = new AbortController().signal

const registration = {
  ...{ nodeRank: 1, nnodes: 2, minNodes: 2, nproc: 1, host: 'h1', pid: 7, identity: 'i' },
  ...{ address: '10.0.0.2', role: 'default', version: '0.1.0', node: 'v20.0.0' },
  ...{ script: '/train.ts', digest: '' },
}

describe('the next node that joins', () => {
  it.each(['{', 'null', '{"id":"here"}', '[]', '"text"'])(
    'is not read from an invalid registration: %s',
    async (text) => {
      const store = memoryStore()
      await store.queuePush(keys.joining, 'odd')
      await store.set(keys.node('odd'), text)
      expect(await nextNode(store, Deadline.after(50), never)).toBeUndefined()
      await store.close()
    },
  )

  it('is the next one in the queue if the first has left', async () => {
    const store = memoryStore()
    const here = { id: 'here', node: registration, storeAddress: '' }
    for (const id of ['gone', 'here']) await store.queuePush(keys.joining, id)
    await store.set(keys.node('here'), JSON.stringify(here))
    const seen = { ...boundTo(store), check: () => Promise.resolve(true) }
    expect(await nextNode(seen, Deadline.after(60_000), never)).toEqual(here)
    await store.close()
  })

  it('is undefined after the time limit', async () => {
    const store = memoryStore()
    await store.queuePush(keys.joining, 'gone')
    expect(await nextNode(store, Deadline.after(20), never)).toBeUndefined()
    await store.close()
  })

  it('is no longer awaited when the job is stopped', async () => {
    const store = memoryStore()
    const stop = new AbortController()
    const next = nextNode(store, Deadline.after(60_000), stop.signal)
    stop.abort()
    await expect(next).rejects.toMatchObject({ code: 'ERR_TSR_ABORTED' })
    await store.close()
  })
})

function boundTo(store: ReturnType<typeof memoryStore>): Pick<typeof store, 'queuePop' | 'get'> {
  return { queuePop: store.queuePop.bind(store), get: store.get.bind(store) }
}
