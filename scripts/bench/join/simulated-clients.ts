import { clientHandshake, serverHandshake } from '../../../packages/core/src/node/authentication.ts'
import { createStoreData } from '../../../packages/store/src/data.ts'
import {
  decodeClientMessage,
  encodeAnswer,
  encodeRequest,
  type Request,
} from '../../../packages/store/src/protocol.ts'
import { createSession } from '../../../packages/store/src/session.ts'

/** What a rank publishes of itself has about this length. */
const ENDPOINT_BYTES = 450

export interface SimulatedJoin {
  /** CPU time of both sides, without sockets. */
  readonly cpuMs: number
  readonly answers: number
  readonly mebibytes: number
}

/**
 * Lets many clients join on the code of the store, in one process and without sockets. Each proves the
 * token, makes the requests of a rank that joins, and waits until all have come. The values of the other
 * ranks are not read: 96,000 times 96,000 endpoints would be terabytes.
 */
export function simulateJoining(clients: number): SimulatedJoin {
  const start = process.cpuUsage()
  const data = createStoreData()
  let answers = 0
  const calls = Array.from({ length: clients }, () => {
    proveToken('0123456789abcdef0123456789abcdef')
    const session = createSession(data, {
      send: (message) => {
        if (encodeAnswer(message).length > 0 && 'result' in message) answers++
      },
      isFull: () => false,
    })
    let id = 0
    return (request: Request) => {
      session.handle(decodeClientMessage(encodeRequest({ id: ++id, ...request })))
    }
  })
  const value = new Uint8Array(ENDPOINT_BYTES)
  const few = value.subarray(0, 36)
  /** All clients at the same step, as they come when a job starts. */
  const steps: ((rank: number) => Request)[] = [
    () => ({ op: 'compareSet', key: 'world/0/generation', desired: few }),
    (rank) => ({ op: 'check', keys: [`world/0/joined/${rank}`] }),
    (rank) => ({ op: 'delete', key: `world/0/endpoint/${rank}` }),
    (rank) => ({ op: 'set', key: `world/0/alive/${rank}`, value: few, whileConnected: true }),
    (rank) => ({ op: 'set', key: `world/0/endpoint/${rank}`, value }),
    () => ({ op: 'wait', keys: ['world/0/all'] }),
    () => ({ op: 'add', key: 'world/0/arrived', amount: 1 }),
    (rank) => ({ op: 'set', key: `world/0/joined/${rank}`, value: few }),
  ]
  for (const step of steps) {
    for (const [rank, call] of calls.entries()) call(step(rank))
    if (data.value('world/0/arrived') === undefined || data.waiters.size === 0) continue
    calls[0]!({ op: 'set', key: 'world/0/all', value: few })
  }
  const { user, system } = process.cpuUsage(start)
  const mebibytes = Math.round(process.memoryUsage().rss / 2 ** 20)
  return { cpuMs: Math.round((user + system) / 1000), answers, mebibytes }
}

function proveToken(token: string): void {
  const client = clientHandshake(token, 'store')
  const server = serverHandshake(token, 'store')
  const answer = client.answer(server.answer(client.hello)!)
  if (!('proof' in answer)) throw new Error('the server was refused')
  const { accepted, proof } = server.judge(answer.proof)
  if (!accepted || !client.trusts(proof)) throw new Error('the token was refused')
}
