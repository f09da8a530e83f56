import { connectStore, memoryStore, prefixStore, startStoreServer, type Store } from '@tsrun/store'

export const token = 'c0ffee'.repeat(8)

// Most take milliseconds, but values of 8 MiB take longer on a busy machine.

/** Two ways to the same data: what `one` writes, `other` reads. */
export interface Pair {
  readonly one: Store
  readonly other: Store
  readonly close: () => Promise<void>
}

type Open = () => Promise<Pair>

const overTcp: Open = async () => {
  const server = await startStoreServer({ token })
  const one = await connectStore({ ...server.endpoint, token })
  return { one, other: one, close: () => server.close() }
}

const overTwoConnections: Open = async () => {
  const server = await startStoreServer({ token })
  const one = await connectStore({ ...server.endpoint, token })
  const other = await connectStore({ ...server.endpoint, token })
  return { one, other, close: () => server.close() }
}

const inProcess: Open = async () => {
  const server = await startStoreServer({ token })
  const other = await connectStore({ ...server.endpoint, token })
  return { one: server.local, other, close: () => server.close() }
}

const inMemory: Open = () => {
  const store = memoryStore()
  const close = async (): Promise<void> => {
    await store.close()
  }
  return Promise.resolve({ one: store, other: store, close })
}

const prefixed =
  (open: Open): Open =>
  async () => {
    const { one, other, close } = await open()
    await one.set('outside', 'not to be seen')
    return { one: prefixStore(one, 'a/'), other: prefixStore(other, 'a/'), close }
  }

/** Every kind of store there is; each must keep the same promises. */
export const kinds: [string, Open][] = [
  ['one TCP client', overTcp],
  ['two TCP clients', overTwoConnections],
  ['the view of the server and a TCP client', inProcess],
  ['the memory store', inMemory],
  ['a prefix over one TCP client', prefixed(overTcp)],
  ['a prefix over two TCP clients', prefixed(overTwoConnections)],
  ['a prefix over the view of the server', prefixed(inProcess)],
  ['a prefix over the memory store', prefixed(inMemory)],
]

export const text = (bytes: Uint8Array | undefined): string | undefined =>
  bytes && Buffer.from(bytes).toString()

/** A promise and the function that resolves it. */
export function promiseOf<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve!: (value: T) => void
  const promise = new Promise<T>((settle) => (resolve = settle))
  return { promise, resolve }
}

/** Runs the tests of `body` on every kind of store; `stores()` is the pair of the test. */
export function describeEveryStore(body: (stores: () => Pair) => void): void {
  describe.each(kinds)('%s', (_, open) => {
    let pair: Pair
    beforeEach(async () => {
      pair = await open()
    })
    afterEach(async () => {
      await pair.close()
    })
    body(() => pair)
  })
}
