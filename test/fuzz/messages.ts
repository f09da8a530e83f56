import { isNativeError } from 'node:util/types'
import {
  clientHandshake,
  decode,
  encode,
  HELLO_BYTES,
  PROOF_BYTES,
  reviveTsrError,
  serverHandshake,
  tsrError,
  type SerializedTsrError,
} from '@tsrun/core'
import {
  decodeNotice,
  encodeNotice,
  decodeFault,
  encodeFault,
  faultError,
  HEADER_BYTES,
  frameKinds,
  writeHeader,
} from '../internals/distributed/engine.ts'
import {
  checkChoices,
  publishedGroup,
  readDecision,
  readPublished,
  readVotes,
  survivorsOf,
} from '../internals/distributed/groups.ts'
import { createMemory, heapOf, type Heap } from '../internals/distributed/arena.ts'
import { CLOSED, type Transport } from '../internals/distributed/transports.ts'
import {
  createStoreData,
  linkedStore,
  decodeClientMessage,
  decodeServerMessage,
  createSession,
} from '../internals/store.ts'
import { SteppedWorld } from '../distributed/support/stepped-world.ts'
import { isRaw, type Target } from './campaign.ts'
import { json, packed, parsed, plainly, textOf } from './inputs.ts'

const bytes = { $bytes: '12' }
const storeRequests = [
  { op: 'set', key: 'k', value: bytes, timeToLive: 5 },
  { op: 'set', key: 'k', value: bytes, whileConnected: true },
  { op: 'get', key: 'k' },
  { op: 'multiGet', keys: ['k', 'l'] },
  { op: 'wait', keys: ['k', 'l'] },
  { op: 'check', keys: ['k'] },
  { op: 'add', key: 'k', amount: 3 },
  { op: 'compareSet', key: 'k', expected: bytes, desired: bytes },
  { op: 'append', key: 'k', value: bytes },
  { op: 'delete', key: 'k' },
  { op: 'list', key: '' },
  { op: 'queuePush', key: 'q', value: bytes },
  { op: 'queuePop', key: 'q' },
  { op: 'queueLength', key: 'q' },
  { op: 'watch', key: 'k' },
  { op: 'unwatch', watch: 1 },
  { op: 'cancel' },
].map((request) => json({ id: 1, ...request }))

const storeAnswers = [
  { id: 1, result: null },
  { id: 1, result: { success: true, value: bytes } },
  { id: 1, result: ['a', 'b'] },
  { id: 2, result: bytes },
  { id: 3, result: [bytes, bytes] },
  { id: 4, changed: true, value: bytes },
  { id: 2, missing: ['k'] },
  { id: 3, code: 'ERR_TSR_STORE_LIMIT', facts: { what: 'The value', bytes: 9, limit: 8 } },
].map(json)

async function answerClient(input: Uint8Array): Promise<void> {
  const { store, ...calls } = linkedStore(
    {
      endpoint: 'fuzz',
      send: () => undefined,
      setBusy: () => undefined,
      close: () => Promise.resolve(),
    },
    60_000,
  )
  const asked = [
    store.compareSet('k', 'a', 'b'),
    store.get('k'),
    store.multiGet(['k', 'l']),
    store.watch('k', () => undefined),
    store.list(),
    store.check(['k']),
    store.add('k', 1),
    store.append('k', 'v'),
    store.queueLength('k'),
    store.set('k', 'v'),
  ].map(async (call): Promise<unknown> => {
    try {
      return await call
    } catch (error) {
      return error
    }
  })
  try {
    calls.receive(decodeServerMessage(input))
  } finally {
    calls.lost('the end')
    for (const error of await Promise.all(asked)) {
      if (isNativeError(error) && isRaw(error)) throw error
    }
  }
}

function serve(input: Uint8Array): void {
  const data = createStoreData()
  const session = createSession(data, { send: () => undefined, isFull: () => false })
  data.set('k', Buffer.from('12'))
  try {
    // twice, as the second one meets what the first one has left
    session.handle(decodeClientMessage(input))
    session.handle(decodeClientMessage(input))
  } finally {
    session.close()
    data.clear()
  }
}

const token = 'ab'.repeat(32)
const hello = serverHandshake(token, 'fuzz').answer(clientHandshake(token, 'fuzz').hello)!

/** A peer that sends these bytes, and takes everything. */
class Peer implements Transport {
  readonly name = 'fuzz'
  readonly #heap: Heap
  readonly #input: Uint8Array
  #read = 0
  #closed = false

  constructor(heap: Heap, input: Uint8Array) {
    this.#heap = heap
    this.#input = input
  }

  trySend(_peer: number, _at: number, length: number): number {
    return this.#closed ? CLOSED : length
  }

  tryReceive(_peer: number, at: number, length: number): number {
    const part = this.#input.subarray(this.#read, this.#read + length)
    if (this.#closed || part.length === 0) return CLOSED
    this.#heap.bytes.set(part, at)
    this.#read += part.length
    return part.length
  }

  wantSend(): void {
    // nothing is ever full
  }

  closeReason(): string {
    return 'the input is over'
  }

  closePeer(): void {
    this.#closed = true
  }

  close(): void {
    this.#closed = true
  }
}

const frameSeeds = Object.values(frameKinds).map((kind) => {
  const heap = heapOf(createMemory(4 * 1024 * 1024))
  const fingerprint = { kind: 0x01020304, root: 0, count: 16 }
  const place = { index: 0, credit: 1, place: 4096, guard: 1 }
  writeHeader(heap, 0, {
    ...{ kind, space: 0, group: 0, sequence: 1, fingerprint, bytes: 64, ...place },
  })
  return Uint8Array.from(heap.bytes.subarray(0, HEADER_BYTES + 64))
})

async function talk(input: Uint8Array): Promise<void> {
  const world = new SteppedWorld(2, {
    memory: 4 * 1024 * 1024,
    transport: (rank, heap) => new Peer(heap, rank === 0 ? input : new Uint8Array(0)),
  })
  const { group, engine } = world.ranks[0]!
  const works = [
    group.allReduce(new Float32Array(16)),
    group.recv(new Float32Array(16), 1),
    group.send(new Float32Array(16), 1),
  ]
  const settled = Promise.allSettled(works)
  for (let i = 0; i < 50; i++) engine.progress(true)
  engine.failAll(tsrError('ERR_TSR_INTERNAL', { what: 'the end' }))
  for (const outcome of await settled) {
    if (outcome.status === 'rejected' && isRaw(outcome.reason)) throw outcome.reason
  }
}

const fingerprint = { kind: 0x01020304, root: 0, count: 16 }
const mismatch = { rank: 0, mine: fingerprint, peer: 1, theirs: fingerprint, mySite: 'a.ts:1' }
const context = { group: 'world', sequence: 1, rank: 1, peer: 0, operation: 'allReduce' }

/** Of a group that shrinks. */
const members = [0, 1, 2]

const error = tsrError('ERR_TSR_ARGUMENT', { name: 'a', value: 1, expected: 'b' }).toJSON()

/** What processes of a job send each other. */
export const messageTargets: readonly Target[] = [
  {
    name: 'msgpack',
    seeds: [
      encode({ a: [1, 'x', null], b: new Map([[1, new Set(['y'])]]), c: Float32Array.of(1) }),
      encode([
        new Error('m', { cause: new TypeError('n') }),
        5n,
        new Date(5),
        [{ a: 1 }, { a: 2 }],
      ]),
      encode([/x/g, -0, Object.fromEntries([['__proto__', 1]]), [members, members]]),
      // names that msgpackr's own readers look up in their tables, keys that they compile or change
      ...['__lookupGetter__', 'valueOf', 'constructor'].map((name) =>
        encode(Object.assign(new Error('__proto__'), { name })),
      ),
      // a regular expression
      Buffer.from('d4780092a161a167', 'hex'),
      Buffer.from('d47240'.concat('91a161', '01'), 'hex'),
      Buffer.from('9581a95f5f70726f746f5f5f8040404040', 'hex'),
    ],
    run: (input) => plainly(decode(input)),
  },
  {
    name: 'store-request',
    seeds: storeRequests,
    isJson: true,
    encode: packed,
    run: serve,
  },
  {
    name: 'store-answer',
    seeds: storeAnswers,
    isJson: true,
    encode: packed,
    run: answerClient,
  },
  {
    name: 'handshake',
    seeds: [hello, new Uint8Array(HELLO_BYTES + PROOF_BYTES)],
    run: (input) => {
      const client = clientHandshake(token, 'fuzz')
      client.answer(input.subarray(0, HELLO_BYTES))
      if (client.trusts(input.subarray(HELLO_BYTES))) throw new TypeError('it is trusted')
      const server = serverHandshake(token, 'fuzz')
      server.answer(input.subarray(0, HELLO_BYTES))
      const { accepted } = server.judge(input.subarray(HELLO_BYTES), textOf(input))
      if (accepted) throw new TypeError('it is accepted')
    },
  },
  { name: 'frames', seeds: frameSeeds, run: talk },
  {
    name: 'fault',
    seeds: [json({ reason: 'x', all: true, mismatch }), json({ reason: 'x', destroyed: true })],
    isJson: true,
    encode: packed,
    run: (input) => faultError(decodeFault(input), context).message,
  },
  {
    name: 'notice',
    seeds: [encodeNotice({ kind: 'answer', text: 'x' }), encodeNotice({ kind: 'site', site: 'y' })],
    run: decodeNotice,
  },
  {
    name: 'fault-bytes',
    seeds: [encodeFault({ reason: 'x', all: true, mismatch })],
    run: (input) => faultError(decodeFault(input), context).message,
  },
  {
    name: 'new-group',
    seeds: [json({ id: 1, order: '0, 2', first: 0 })],
    isJson: true,
    run: (input) => readPublished(input, publishedGroup, 'rank 0').order.length,
  },
  {
    name: 'shrink-decision',
    seeds: [json({ id: 1, survivors: [0, 2] })],
    isJson: true,
    run: (input) => readDecision(input, members).survivors.map((rank) => rank + 1),
  },
  {
    name: 'shrink-votes',
    seeds: [json({ rank: 0, gone: [1] }), json({ rank: 1, gone: [] })],
    isJson: true,
    run: (input) => {
      const log = Buffer.from(`${textOf(input)}\n{"rank":2,"gone":[1]}\n`)
      survivorsOf(members, readVotes(log, members))
    },
  },
  {
    name: 'split-choices',
    seeds: [json([[1, 0], ...Array.from({ length: 2 }, () => [null, -1])])],
    isJson: true,
    run: (input) => {
      const values = parsed(input)
      for (const [color, key] of checkChoices(Array.isArray(values) ? values : [values])) {
        if (!Number.isInteger(color ?? 0) || !Number.isInteger(key)) throw new TypeError('a choice')
      }
    },
  },
  {
    name: 'error',
    seeds: [json(error), json({ ...error, code: 'ERR_TSR_STORE_ADDRESS', facts: { reason: 'x' } })],
    isJson: true,
    run: (input) => {
      const revived = reviveTsrError(parsed(input) as SerializedTsrError)
      return [revived.category, revived.advice, revived.toJSON()]
    },
  },
]
