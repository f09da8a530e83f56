import {
  LARGEST_QUEUE,
  connectMesh,
  type ByteChannel,
  type Dialer,
} from '../../internals/distributed/transports.ts'
import { errorOf } from '../support/outcome.ts'
import { describeMesh, purpose, token } from './support/mesh.ts'

// Each kind accepts and dials here, in pairs of two kinds; pairs of one kind are in mesh.nightly.test.ts.
describeMesh([
  ['tcp', 'node'],
  ['node', 'tcp'],
])

it('a rank keeps at most one queue of unauthenticated connections', async () => {
  let callers = 1500
  let open = 0
  let most = 0
  const stranger = (): ByteChannel => {
    most = Math.max(most, ++open)
    let hangUp: (() => void) | undefined
    return {
      write: () => Promise.resolve(),
      read: () =>
        new Promise((_, reject) => {
          hangUp = () => {
            reject(new Error('closed'))
          }
        }),
      close: () => {
        if (hangUp !== undefined) open--
        hangUp?.()
        hangUp = undefined
      },
    }
  }
  const endpoint = { host: '127.0.0.1', port: 1 }
  const dialer: Dialer<ByteChannel> = {
    endpoint,
    accept: () => (callers-- > 0 ? Promise.resolve(stranger()) : new Promise(() => undefined)),
    dial: () => Promise.reject(new Error('nobody is called')),
    stopListening: () => undefined,
  }
  const options = { token, purpose, timeout: 200, rank: 0, endpoints: [endpoint, endpoint] }
  const error = await errorOf(() => connectMesh(dialer, options))
  expect(error).toMatchObject({ code: 'ERR_TSR_CONNECT' })
  expect(callers).toBeLessThanOrEqual(0)
  // One more, for which the oldest is dropped.
  expect(most).toBeLessThanOrEqual(LARGEST_QUEUE + 1)
  expect(open).toBe(0)
})
