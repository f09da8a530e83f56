export { hasOpenSsl, openAesGcm, TAG_BYTES } from './aes-gcm.ts'
export { openBlas, type Blas } from './blas.ts'
export {
  addressOfBell,
  createBell,
  openAgain,
  openBell,
  ringBell,
  silenceBell,
  type BellAddress,
} from './bell.ts'
export {
  addressOf,
  bindAll,
  closeNative,
  EADDRINUSE,
  EAGAIN,
  ECONNREFUSED,
  ECONNRESET,
  EINTR,
  EPIPE,
  errnoName,
  ETIMEDOUT,
  isAvailable,
  lastErrno,
  openNative,
  openSharedLibrary,
  readNative,
  statusOf,
  systemCallError,
  writeNative,
  type SharedLibrary,
} from './libc.ts'
export { pollFds, POLLERR, POLLFD_BYTES, POLLIN, POLLOUT, yieldCore } from './poll.ts'
export {
  addressSpaceLimit,
  allowedCores,
  hasAllCores,
  becomeProgram,
  currentCore,
  duplicateAbove,
  leadProcessGroup,
  limitResource,
  moveToCore,
  setParentDeathSignal,
  stayOnCores,
} from './process.ts'
export {
  copyMemory,
  createSharedFile,
  mapFile,
  mapFileOver,
  mapPrivateOver,
  openSharedFile,
  unmapFile,
} from './shared-memory.ts'
export type { Endpoint } from './socket-address.ts'
export {
  acceptTcp,
  connectError,
  connectTcp,
  divertSocket,
  listenTcp,
  peerAddress,
  receiveBytes,
  sendBytes,
  shutdownSocket,
  tuneTcp,
} from './sockets.ts'
