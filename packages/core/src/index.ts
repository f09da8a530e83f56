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
export { moduleAddress } from './module-address.ts'
export { readBuiltFile } from './node/built-file.ts'
export { decode, encode } from './codec.ts'
export {
  parsePortRange,
  readCoreRanks,
  readRankEnvironment,
  takeToken,
  toEnvironment,
  type PortRange,
  type RankEnvironment,
} from './node/environment.ts'
export { PendingConnections } from './pending-connections.ts'
export {
  checkReplaceable,
  distrustOf,
  makeFolders,
  makeOwnFolder,
  namesIn,
  openFile,
  openFileHandle,
  openOwnFile,
  readFileBytes,
  readFileText,
  replaceFile,
  writeWhole,
} from './host/files.ts'
export { nearestName } from './nearest-name.ts'
export { importOptional } from './optional-package.ts'
import { host as ownHost } from '#host'
import type { Host } from './host/node.ts'

/** Services of the host, Node.js or a web page: environment, clock, timers, files. */
export const host: Host = ownHost
export { addFrames, addLabel } from './errors/context.ts'
export type { ErrorCategory, ErrorDefinition } from './errors/definition.ts'
export {
  argumentError,
  codeOf,
  distanceFromCause,
  errorTable,
  isTsrError,
  messageOf,
  shown,
  TsrError,
  tsrError,
  tsrErrorIn,
  type ErrorFacts,
  type SerializedTsrError,
  type TsrErrorCode,
} from './errors/tsr-error.ts'
export { errorFacts, reviveTsrError } from './sent-error.ts'
export {
  formatBytes,
  formatRankList,
  formatRanks,
  formatSeconds,
  formatTable,
  textWidth,
} from './format.ts'
export {
  anything,
  callback,
  choice,
  count,
  declareOptions,
  either,
  filled,
  finite,
  flag,
  having,
  integer,
  isObject,
  list,
  number,
  object,
  parseJson,
  positive,
  readVariable,
  record,
  refuseUnknown,
  Schema,
  text,
  where,
  written,
  type Complete,
  type NumberRange,
  type ObjectOf,
  type Of,
  type Rules,
} from './schema.ts'
export {
  firstOfNodeList,
  launchedEnvironment,
  launchedPlace,
  placeVariables,
  portOfStep,
  type LaunchedPlace,
} from './node/launchers.ts'
export { createLogger, readLogLevel, type Logger } from './logger.ts'
export { endingColours, visibleText } from './visible-text.ts'
export {
  blasLibraries,
  gpusAreHidden,
  libraryPath,
  readBlasManifest,
  readTensorFlowManifest,
  restoreLegacyUtil,
  thisSystem,
  tsrunHome,
  writeManifest,
  type BlasManifest,
  type TensorFlowManifest,
  type TensorFlowRequest,
} from './node/manifest.ts'
export { ProgressLine } from './node/progress-line.ts'
export { seededRandom } from './random.ts'
export {
  protectionFlags,
  readProtection,
  type Certificate,
  type Protection,
  type ProtectionSettings,
} from './node/protection.ts'
export { retry, type RetryOptions } from './node/retry.ts'
export { Deadline, monotonicNow, waitOrAbort } from './time.ts'
export { isStrongToken, TOKEN_EXPECTED } from './token.ts'
