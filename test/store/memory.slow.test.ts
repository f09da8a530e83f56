import { Duplex } from 'node:stream'
import type { Socket } from 'node:net'
import { connectStore, startStoreServer, type Store, type StoreServer } from '@tsrun/store'
import { decodeServerMessage, openConnection } from '../internals/store.ts'
import { frame, openProven, until } from './raw-client.ts'

const token = 'ab'.repeat(32)
const MIB = 2 ** 20
const large = Buffer.alloc(8 * MIB, 7)
const medium = Buffer.alloc(2 * MIB, 7)

let server: StoreServer
let store: Store

beforeEach(async () => {
  server = await startStoreServer({ token })
  store = await connectStore({ ...server.endpoint, token })
})

afterEach(async () => {
  await store.close()
  await server.close()
})

/** The bytes of buffers that the action adds to those of this process, at their most, in MiB. */
async function grownBy(action: () => Promise<unknown>): Promise<number> {
  const before = process.memoryUsage().arrayBuffers
  let most = 0
  const look = (): void => {
    most = Math.max(most, process.memoryUsage().arrayBuffers - before)
  }
  const timer = setInterval(look, 1)
  await action()
  look()
  clearInterval(timer)
  return most / MIB
}

/** A client that has asked and does not read. */
async function openSilent(...keys: string[]): Promise<Socket> {
  const socket = await openProven(server.endpoint, token)
  socket.pause()
  for (const [id, key] of keys.entries()) socket.write(frame({ id, op: 'get', key }))
  return socket
}

/** Reads the answers, and gives the ids with their first byte and length. */
function readAnswers(socket: Socket): Map<number, readonly [first: number, length: number]> {
  const answers = new Map<number, readonly [number, number]>()
  const onFrame = (bytes: Uint8Array): void => {
    const message = decodeServerMessage(bytes) as { id: number; result: Uint8Array }
    answers.set(message.id, [message.result[0]!, message.result.length])
  }
  openConnection(socket, { onFrame, onClose: () => undefined }, false).start()
  return answers
}

describe('the memory of the store', () => {
  it('holds a value once for a hundred waits of a client that does not read', async () => {
    const keys = Array.from({ length: 100 }, () => 'k')
    const socket = await openSilent(...keys)
    await until(() => server.inspect().waiting === keys.length)
    expect(await grownBy(async () => store.set('k', medium))).toBeLessThan(50)
    const answers = readAnswers(socket)
    await until(() => answers.size === keys.length)
    expect([...answers.values()]).toEqual(keys.map(() => [7, medium.length]))
    socket.destroy()
  })

  it('holds a value once for 256 clients that wait for it', async () => {
    const sockets: Socket[] = []
    while (sockets.length < 256) sockets.push(await openSilent('k'))
    await until(() => server.inspect().waiting === sockets.length)
    expect(await grownBy(async () => store.set('k', large))).toBeLessThan(200)
    const answers = readAnswers(sockets[0]!)
    await until(() => answers.size === 1)
    expect(answers.get(0)).toEqual([7, large.length])
    for (const socket of sockets) socket.destroy()
  })

  it('keeps no former values for a client that does not read', async () => {
    const keys = Array.from({ length: 32 }, (_, i) => `k${String(i)}`)
    const socket = await openSilent(...keys)
    await until(() => server.inspect().waiting === keys.length)
    for (const key of keys) {
      await store.set(key, large)
      await store.delete(key)
    }
    const answers = readAnswers(socket)
    await until(() => answers.size + server.inspect().waiting === keys.length)
    expect([1, 2, 3, 4, 5]).toContain(answers.size)
    // those that had no room wait again, for the values of then
    for (const key of keys) await store.set(key, 'new')
    await until(() => answers.size === keys.length)
    expect(answers.get(keys.length - 1)).toEqual(['n'.charCodeAt(0), 3])
    socket.destroy()
  })

  it('writes at most 256 KiB to a socket at once, because TLS copies what it is given', () => {
    const stuck: unknown = new Duplex({ read: () => undefined, write: () => undefined })
    const events = { onFrame: () => undefined, onClose: () => undefined }
    const connection = openConnection(stuck as Socket, events, true)
    connection.send(large, large)
    expect((stuck as Socket).writableLength).toBeLessThan(300 * 1024)
    expect(connection.backlog()).toBe(4 + 2 * large.length)
    connection.destroy('the end')
  })

  it('sends several large values in one answer', async () => {
    const values = Array.from({ length: 5 }, (_, i) => new Uint8Array(MIB + i).fill(i))
    for (const [i, value] of values.entries()) await store.set(String(i), value)
    await store.set('small', 'x')
    const got = await store.multiGet(['0', '1', 'small', '2', '3', '4', '0'])
    const [first, second, ...others] = values
    const expected = [first!, second!, new Uint8Array([120]), ...others, first!]
    expect(got.map((value, i) => Buffer.compare(value, expected[i]!))).toEqual(
      expected.map(() => 0),
    )
    const { success, value } = await store.compareSet('0', undefined, 'y')
    expect([success, Buffer.compare(value!, first!)]).toEqual([false, 0])
  })
})
