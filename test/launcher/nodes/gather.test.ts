import { Deadline } from '@tsrun/core'
import { memoryStore } from '@tsrun/store'
import { nextNode } from '../../../packages/launcher/src/nodes/gather.ts'
import { keys } from '../../../packages/launcher/src/nodes/messages.ts'

const never = new AbortController().signal

describe('the next node that joins', () => {
  it('is not one that has left since it was seen', async () => {
    const store = memoryStore()
    const here = { id: 'here', node: { nodeRank: 1 }, storeAddress: '' }
    for (const id of ['gone', 'here']) await store.queuePush(keys.joining, id)
    await store.set(keys.node('here'), JSON.stringify(here))
    const seen = { ...boundTo(store), check: () => Promise.resolve(true) }
    expect(await nextNode(seen, Deadline.after(60_000), never)).toEqual(here)
    await store.close()
  })

  it('is undefined when the time is up', async () => {
    const store = memoryStore()
    await store.queuePush(keys.joining, 'gone')
    expect(await nextNode(store, Deadline.after(20), never)).toBeUndefined()
    await store.close()
  })

  it('is not waited for any more when the job is stopped', async () => {
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
