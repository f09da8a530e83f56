import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import {
  connect,
  createServer,
  type ConnectionOptions,
  type TLSSocket,
  type TlsOptions,
} from 'node:tls'
import { codeOf, type Certificate, type ProtectionSettings } from '@tsrun/core'
import { nameEndpoint } from './addresses.ts'

/*
 * TLS 1.3 for the sockets of the store. Without certificates, both sides derive a pre-shared key from
 * the token (RFC 8446, 2.2), so there is nothing to distribute. Both modes have forward secrecy:
 * recorded traffic stays unreadable if the token or a certificate's key leaks later.
 */

/** The encryption of a store's sockets: with keys from the token (true), or with certificates. */
export type StoreTls = true | Certificate

/** Returns how the store of a job is encrypted; undefined without encryption. */
export function storeTlsOf({ protection, certificate }: ProtectionSettings): StoreTls | undefined {
  return protection === 'none' ? undefined : (certificate ?? true)
}

/** OpenSSL offers pre-shared keys only with ciphers that use SHA-256. */
const TOKEN_CIPHER = 'TLS_AES_128_GCM_SHA256'
const IDENTITY = 'tsrun'

function keyOf(token: string) {
  return createHmac('sha256', token).update('tsrun store tls').digest()
}

function commonOptions(tls: StoreTls): ConnectionOptions & TlsOptions {
  const options = { minVersion: 'TLSv1.3', maxVersion: 'TLSv1.3' } as const
  if (tls === true) return { ...options, ciphers: TOKEN_CIPHER }
  const { cert, key, ca = cert } = tls
  return { ...options, cert, key, ca }
}

/**
 * Creates the server side of TLS.
 *
 * @returns a function that starts TLS on an accepted socket. It resolves when the TLS handshake is
 *   complete, and rejects if the socket ends first.
 * @throws an Error of OpenSSL for an invalid certificate or key
 */
export function createSecureServer(
  tls: StoreTls,
  token: string,
): (socket: Socket) => Promise<TLSSocket> {
  /** The resolve functions of pending handshakes, by the address and port of the peer. */
  const waiting = new Map<string, (socket: TLSSocket) => void>()
  const server = createServer({
    ...commonOptions(tls),
    ...(tls === true
      ? { pskCallback: (_: TLSSocket, name: string) => (name === IDENTITY ? keyOf(token) : null) }
      : // Accept any certificate here. `acceptsPeer` checks it later, so that the client can be told.
        { requestCert: true, rejectUnauthorized: false }),
  })
  server.on('secureConnection', (socket) => {
    waiting.get(nameOf(socket))?.(socket)
  })
  return async (socket) => {
    const name = nameOf(socket)
    try {
      return await new Promise<TLSSocket>((resolve, reject) => {
        waiting.set(name, resolve)
        socket.once('close', () => {
          reject(new Error('the TLS handshake failed'))
        })
        server.emit('connection', socket)
      })
    } finally {
      waiting.delete(name)
    }
  }
}

function nameOf({ remoteAddress = '', remotePort = 0 }: Socket) {
  return nameEndpoint(remoteAddress, remotePort)
}

/** Whether this side's authority has signed the peer's certificate. */
export function acceptsPeer(socket: TLSSocket, tls: StoreTls): boolean {
  return tls === true || socket.authorized
}

/** Starts TLS on a connected socket, on the client side. @throws an Error of OpenSSL */
export async function secureClient(
  socket: Socket,
  tls: StoreTls,
  token: string,
): Promise<TLSSocket> {
  const secure = connect({
    ...commonOptions(tls),
    socket,
    ...(tls === true && { pskCallback: () => ({ psk: keyOf(token), identity: IDENTITY }) }),
    // Skip the host name: the token, not the certificate, authenticates the peer.
    checkServerIdentity: () => undefined,
  })
  await once(secure, 'secureConnect')
  return secure
}

/** Returns keying material that only the two ends of the connection know. The proofs include it. */
export function bindingOf(socket: TLSSocket): string {
  return socket.exportKeyingMaterial(32, 'tsrun store', Buffer.alloc(0)).toString('hex')
}

/** Whether a handshake failed because the other side does not speak TLS. */
export function isPlainPeer(error: unknown): boolean {
  return codeOf(error) === 'ERR_SSL_WRONG_VERSION_NUMBER'
}

/** Whether a handshake failed because the other side has another token. */
export function isOtherToken(error: unknown): boolean {
  return /DECRYPT_ERROR|ILLEGAL_PARAMETER|BINDER/.test(codeOf(error))
}

/** Whether an error comes from TLS, not from the network. Another attempt would then fail too. */
export function isTlsError(error: unknown): boolean {
  return /^(ERR_SSL|ERR_TLS|CERT_|UNABLE_TO_|.*SELF_SIGNED|ERR_OSSL)/.test(codeOf(error))
}
