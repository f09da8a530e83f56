export {
  CLIENT_HELLO_BYTES,
  CLIENT_PROOF_BYTES,
  clientHandshake,
  HANDSHAKE_VERSION,
  makeNonce,
  prove,
  SERVER_HELLO_BYTES,
  serverHandshake,
  verify,
  type Challenge,
  type ClientHandshake,
  type HandshakeRefusal,
  type HandshakeRole,
  type ServerHandshake,
} from './authentication.ts'
export { monotonicNow } from './clock.ts'
export { decode, encode, MESSAGE_LIMIT } from './codec.ts'
export { Deadline, waitOrAbort } from './deadline.ts'
export { readRankEnvironment, toEnvironment, type RankEnvironment } from './environment.ts'
export type { ErrorCategory, ErrorDefinition } from './errors/definition.ts'
export { errorTable, type TsrErrorCode } from './errors/table.ts'
export {
  isTsrError,
  reviveTsrError,
  TsrError,
  tsrError,
  type ErrorFacts,
  type SerializedTsrError,
} from './errors/tsr-error.ts'
export {
  anything,
  callback,
  choice,
  count,
  declareOptions,
  flag,
  having,
  nearestName,
  number,
  pattern,
  positive,
  refuseUnknown,
  Rule,
  text,
  where,
  type Complete,
  type NumberRange,
  type Rules,
} from './options.ts'
export { shown } from './shown.ts'
export { restoreLegacyUtil } from './legacy-util.ts'
export { createLogger, type Logger } from './logger.ts'
export { parsePortRange, type PortRange } from './port-range.ts'
export { retry, type RetryOptions } from './retry.ts'
export {
  libraryPath,
  readTensorFlowManifest,
  tensorflowHome,
  thisSystem,
  writeTensorFlowManifest,
  type TensorFlowManifest,
  type TensorFlowRequest,
} from './tensorflow-manifest.ts'
export { gpusAreHidden } from './visible-gpus.ts'
