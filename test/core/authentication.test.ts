import {
  CLIENT_HELLO_BYTES,
  CLIENT_PROOF_BYTES,
  clientHandshake,
  makeNonce,
  prove,
  SERVER_HELLO_BYTES,
  serverHandshake,
  verify,
} from '@tsrun/core'
import fc from 'fast-check'

describe('the handshake of two processes', () => {
  it('accepts both sides when they share the token', () => {
    const client = clientHandshake('secret', 'store')
    const server = serverHandshake('secret', 'store')
    const answer = server.answer(client.hello)!
    const reply = client.answer(answer)
    expect(client.hello).toHaveLength(CLIENT_HELLO_BYTES)
    expect(answer).toHaveLength(SERVER_HELLO_BYTES)
    if (!('proof' in reply)) throw new Error(reply.refused)
    expect(reply.proof).toHaveLength(CLIENT_PROOF_BYTES)
    expect(server.accepts(reply.proof)).toBe(true)
  })

  it.each([
    ['another token', 'other', 'store'],
    ['another purpose', 'secret', 'data'],
    ['an empty token', '', 'store'],
  ])('refuses %s on both sides', (_, token, purpose) => {
    const server = serverHandshake('secret', 'store')
    const stranger = clientHandshake(token, purpose)
    const hello = server.answer(stranger.hello)!
    expect(stranger.answer(hello)).toEqual({ refused: 'token' })
    const challenge = {
      purpose,
      clientNonce: stranger.hello.slice(8, 40),
      serverNonce: hello.slice(8, 40),
    }
    expect(server.accepts(prove(token, 'client', challenge))).toBe(false)
  })

  it('refuses the reflected proof of the server', () => {
    const server = serverHandshake('secret', 'store')
    const hello = server.answer(clientHandshake('secret', 'store').hello)!
    expect(server.accepts(hello.subarray(40))).toBe(false)
  })

  it('refuses a proof recorded from an earlier connection', () => {
    const client = clientHandshake('secret', 'store')
    const recorded = client.answer(serverHandshake('secret', 'store').answer(client.hello)!)
    if (!('proof' in recorded)) throw new Error(recorded.refused)
    const server = serverHandshake('secret', 'store')
    server.answer(client.hello)
    expect(server.accepts(recorded.proof)).toBe(false)
  })

  it('refuses the hello of a server recorded from an earlier connection', () => {
    const server = serverHandshake('secret', 'store')
    const recorded = server.answer(clientHandshake('secret', 'store').hello)!
    expect(clientHandshake('secret', 'store').answer(recorded)).toEqual({ refused: 'token' })
  })

  it('refuses a proof that comes before the hello', () => {
    expect(serverHandshake('secret', 'store').accepts(new Uint8Array(32))).toBe(false)
  })

  it('tells a peer of another version from one with another token', () => {
    const client = clientHandshake('secret', 'store')
    const hello = serverHandshake('secret', 'store').answer(client.hello)!
    hello[4] = 99
    expect(client.answer(hello)).toEqual({ refused: 'version' })
  })

  it('answers a client of another version, so that it can tell its user', () => {
    const { hello } = clientHandshake('secret', 'store')
    hello[4] = 99
    expect(serverHandshake('secret', 'store').answer(hello)).toHaveLength(SERVER_HELLO_BYTES)
  })

  it('refuses any other bytes without throwing', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
        const client = clientHandshake('secret', 'store')
        expect(serverHandshake('secret', 'store').answer(bytes)).toBeUndefined()
        expect(client.answer(bytes)).toEqual({ refused: 'protocol' })
      }),
    )
  })

  it('refuses a proof with any bit changed or of another length', () => {
    const challenge = { purpose: 'store', clientNonce: makeNonce(), serverNonce: makeNonce() }
    const proof = prove('secret', 'client', challenge)
    expect(verify('secret', 'client', challenge, proof)).toBe(true)
    expect(verify('secret', 'client', challenge, proof.subarray(0, 31))).toBe(false)
    fc.assert(
      fc.property(fc.nat(255), (bit) => {
        const changed = proof.slice()
        changed[bit >> 3]! ^= 1 << (bit & 7)
        expect(verify('secret', 'client', challenge, changed)).toBe(false)
      }),
    )
  })

  it('makes a new nonce each time', () => {
    expect(makeNonce()).not.toEqual(makeNonce())
  })
})
