import { host as ownHost } from '#host'
import type { Host } from './host/node.ts'

/** Services of the host, Node.js or a web page: environment, clock, timers, files. */
export const host: Host = ownHost

export { decode, encode } from './codec.ts'
export * from './errors/context.ts'
export type { ErrorCategory, ErrorDefinition } from './errors/definition.ts'
export * from './errors/tsr-error.ts'
export * from './format.ts'
export * from './host/files.ts'
export * from './logger.ts'
export * from './module-address.ts'
export * from './nearest-name.ts'
export {
  certificateRefusal,
  clientHandshake,
  HELLO_BYTES,
  HELLO_START_BYTES,
  helloOf,
  isHelloStart,
  nextKey,
  PROOF_BYTES,
  prove,
  serverHandshake,
  type Challenge,
  type HandshakeRefusal,
  type HandshakeRole,
  type SessionKeys,
} from './node/authentication.ts'
export * from './node/built-file.ts'
export * from './node/environment.ts'
export * from './node/launchers.ts'
export * from './node/manifest.ts'
export * from './node/progress-line.ts'
export {
  protectionFlags,
  readProtection,
  type Certificate,
  type Protection,
  type ProtectionSettings,
} from './node/protection.ts'
export * from './node/retry.ts'
export * from './optional-package.ts'
export * from './pending-connections.ts'
export * from './random.ts'
export * from './schema.ts'
export * from './sent-error.ts'
export * from './time.ts'
export * from './token.ts'
export * from './visible-text.ts'
