import { clientHandshake, HELLO_BYTES, PROOF_BYTES, prove, serverHandshake } from '@tsrun/core'
import fc from 'fast-check'
import { makeNonce, verify } from '../internals/core.ts'

describe('the handshake of two processes', () => {
  /** The proof of a client for the hello of a server. */
  function proofOf(client: ReturnType<typeof clientHandshake>, hello: Uint8Array): Uint8Array {
    const reply = client.answer(hello)
    if (!('proof' in reply)) throw new Error(reply.refused)
    return reply.proof
  }

  it('accepts two processes that share the token', () => {
    const client = clientHandshake('secret', 'data', '2 to 1')
    const server = serverHandshake('secret', 'data')
    const hello = server.answer(client.hello)!
    expect([client.hello, hello].map(({ length }) => length)).toEqual([HELLO_BYTES, HELLO_BYTES])
    const own = proofOf(client, hello)
    const { accepted, proof } = server.judge(own, '2 to 1')
    expect([own, proof].map(({ length }) => length)).toEqual([PROOF_BYTES, PROOF_BYTES])
    expect(accepted).toBe(true)
    expect(client.trusts(proof)).toBe(true)
  })

  it.each([
    ['another token', 'other', 'data', '2 to 1'],
    ['another purpose', 'secret', 'store', '2 to 1'],
    ['an empty token', '', 'data', '2 to 1'],
    ['another target rank', 'secret', 'data', '2 to 3'],
    ['another own rank', 'secret', 'data', '0 to 1'],
  ])(
    'refuses a peer with %s on both sides, without sending it a valid proof',
    (_, token, purpose, parties) => {
      const server = serverHandshake('secret', 'data')
      const stranger = clientHandshake(token, purpose, parties)
      const hello = server.answer(stranger.hello)!
      const { accepted, proof } = server.judge(proofOf(stranger, hello), '2 to 1')
      expect(accepted).toBe(false)
      expect(proof).toEqual(new Uint8Array(PROOF_BYTES))
      expect(stranger.trusts(proof)).toBe(false)
    },
  )

  it('sends nothing that depends on the token to a peer without a valid proof', () => {
    const hello = serverHandshake('secret', 'store').answer(clientHandshake('x', 'store').hello)!
    // magic and version, then a nonce
    expect(hello.slice(0, 8)).toEqual(clientHandshake('x', 'store').hello.slice(0, 8))
    expect(hello).toHaveLength(8 + makeNonce().length)
  })

  it('refuses a reflected proof', () => {
    const client = clientHandshake('secret', 'store')
    const hello = serverHandshake('secret', 'store').answer(client.hello)!
    expect(client.trusts(proofOf(client, hello))).toBe(false)
  })

  it('refuses a proof recorded from an earlier connection', () => {
    const client = clientHandshake('secret', 'store')
    const before = serverHandshake('secret', 'store')
    const recorded = proofOf(client, before.answer(client.hello)!)
    const server = serverHandshake('secret', 'store')
    server.answer(client.hello)
    expect(server.judge(recorded).accepted).toBe(false)
    const { proof } = before.judge(recorded)
    const later = clientHandshake('secret', 'store')
    later.answer(server.answer(later.hello)!)
    expect(later.trusts(proof)).toBe(false)
  })

  it('refuses a proof that comes before the hello', () => {
    const nothing = new Uint8Array(PROOF_BYTES)
    expect(serverHandshake('secret', 'store').judge(nothing).accepted).toBe(false)
    expect(clientHandshake('secret', 'store').trusts(nothing)).toBe(false)
  })

  it('reports different errors for another version and for another token', () => {
    const client = clientHandshake('secret', 'store')
    const hello = serverHandshake('secret', 'store').answer(client.hello)!
    hello[4] = 99
    expect(client.answer(hello)).toEqual({ refused: 'version' })
  })

  it('answers a client of another version, so that the client can report it', () => {
    const { hello } = clientHandshake('secret', 'store')
    hello[4] = 99
    expect(serverHandshake('secret', 'store').answer(hello)).toHaveLength(HELLO_BYTES)
  })

  it('refuses arbitrary bytes without throwing', () => {
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

  it('uses a new nonce each time', () => {
    expect(makeNonce()).not.toEqual(makeNonce())
  })
})
