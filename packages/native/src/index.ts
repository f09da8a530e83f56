export { AesGcm, hasOpenSsl, TAG_BYTES } from './aes-gcm.ts'
export { allowedCores, currentCore, moveToCore, stayOnCores } from './affinity.ts'
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
  EINPROGRESS,
  EINTR,
  EPIPE,
  errnoName,
  ETIMEDOUT,
  isAvailable,
  lastErrno,
  openNative,
  readNative,
  systemCallError,
  writeNative,
} from './libc.ts'
export {
  drainEventfd,
  openEventfd,
  pollFds,
  POLLERR,
  POLLFD_BYTES,
  POLLIN,
  POLLOUT,
  signalEventfd,
  yieldCore,
} from './poll.ts'
export { addressSpaceLimit, limitAddressSpace, limitFileSize, limitOpenFiles } from './limits.ts'
export { becomeProgram, duplicateAbove, leadProcessGroup, setParentDeathSignal } from './process.ts'
export { openSharedLibrary, type SharedLibrary } from './shared-library.ts'
export {
  copyMemory,
  createSharedFile,
  futexWait,
  futexWake,
  mapFile,
  mapFileOver,
  mapPrivateOver,
  openSharedFile,
  unmapFile,
} from './shared-memory.ts'
export type { Endpoint } from './socket-address.ts'
export { statusOf } from './status.ts'
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
