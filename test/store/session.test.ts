import { createSession, createStoreData } from '../internals/store.ts'

/** A key of which a client may wait for about 4000. */
const LONG = 'k'.repeat(8000)
const value = new Uint8Array(1)

type Request = Parameters<ReturnType<typeof createSession>['handle']>[0]

it.each<[string, (id: number) => Request[]]>([
  ['an answered wait', (id) => [{ id, op: 'get', key: LONG }]],
  [
    'a cancelled wait',
    (id) => [
      { id, op: 'wait', keys: [LONG, 'other'] },
      { id, op: 'cancel' },
    ],
  ],
  [
    'a value of a queue',
    (id) => [
      { id, op: 'queuePop', key: LONG },
      { id: 0, op: 'queuePush', key: LONG, value },
      { id, op: 'received' },
    ],
  ],
  [
    'a watch that was stopped',
    (id) => [
      { id, op: 'watch', key: LONG },
      { id: 0, op: 'unwatch', watch: id },
    ],
  ],
])('the limit on the keys that a client waits for does not count %s', (_, requests) => {
  const data = createStoreData()
  const answers: object[] = []
  const session = createSession(data, {
    send: (message) => answers.push(message),
    isFull: () => false,
  })
  for (let id = 1; id <= 5000; id++) {
    for (const request of requests(id)) session.handle(request)
    data.set(LONG, value)
    data.delete(LONG)
  }
  expect(answers.filter((answer) => 'code' in answer)).toEqual([])
})

it('the limit on the keys that a client waits for counts a wait whose number another call names', () => {
  const answers: object[] = []
  const session = createSession(createStoreData(), {
    send: (message) => answers.push(message),
    isFull: () => false,
  })
  for (let id = 1; id <= 9000; id++) {
    session.handle({ id, op: 'get', key: LONG })
    session.handle({ id: 0, op: 'unwatch', watch: id })
  }
  expect(answers).toContainEqual(expect.objectContaining({ code: 'ERR_TSR_STORE_LIMIT' }))
})
