export { allowedCores, currentCore, moveToCore } from './affinity.ts'
export * from './errno.ts'
export { drainEventfd, openEventfd, signalEventfd } from './eventfd.ts'
export { futexWait, futexWake } from './futex.ts'
export { addressOf, bindAll, isAvailable, lastErrno, systemCallError } from './libc.ts'
export { copyMemory, mapFile, mapFileOver, mapPrivateOver, unmapFile } from './mmap.ts'
export { pollFds, POLLFD_BYTES, POLLIN, POLLOUT, yieldCore } from './poll.ts'
export { leadProcessGroup, setParentDeathSignal } from './process.ts'
export { createSharedFile, openSharedFile } from './shared-file.ts'
export { openSharedLibrary, type SharedLibrary } from './shared-library.ts'
export type { Endpoint } from './socket-address.ts'
export {
  acceptTcp,
  closeSocket,
  connectError,
  connectTcp,
  listenTcp,
  receiveBytes,
  sendBytes,
  tuneTcp,
} from './sockets.ts'
