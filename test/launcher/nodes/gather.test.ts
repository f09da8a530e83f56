import { memoryStore } from '@tsrun/store'
import { nextNode, keys } from '../../internals/launcher/nodes.ts'

const never = new AbortController().signal

const registration = {
  ...{ nodeRank: 1, nnodes: 2, minNodes: 2, nproc: 1, host: 'h1', pid: 7, identity: 'i' },
  ...{ address: '10.0.0.2', role: 'default', version: '0.1.0' },
  ...{ script: '/train.ts', digest: '' },
}
const here = { id: 'here', node: registration, storeAddress: '' }

describe('the next node that joins', () => {
  it.each(['{', 'null', '{"id":"here"}', '[]', '"text"'])(
    'is not read from an invalid registration: %s',
    async (text) => {
      const store = memoryStore()
      for (const id of ['odd', 'here']) await store.queuePush(keys.joining, id)
      await store.set(keys.node('odd'), text)
      await store.set(keys.node('here'), JSON.stringify(here))
      expect(await nextNode(store, never)).toEqual(here)
      await store.close()
    },
  )

  it('is the next one in the queue if the first has left', async () => {
    const store = memoryStore()
    for (const id of ['gone', 'here']) await store.queuePush(keys.joining, id)
    await store.set(keys.node('here'), JSON.stringify(here))
    expect(await nextNode(store, never)).toEqual(here)
    await store.close()
  })

  it('is no longer awaited when the job is stopped', async () => {
    const store = memoryStore()
    const stop = new AbortController()
    const next = nextNode(store, stop.signal)
    stop.abort()
    await expect(next).rejects.toMatchObject({ code: 'ERR_TSR_ABORTED' })
    await store.close()
  })
})
