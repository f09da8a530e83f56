import { isIPv4 } from 'node:net'
import {
  addressOf,
  bindFunctions,
  check,
  closeNative,
  EINPROGRESS,
  EINTR,
  lastErrno,
  lazy,
  systemCallError,
} from './libc.ts'
import {
  AF_INET,
  AF_INET6,
  decodeSocketAddress,
  encodeSocketAddress,
  SOCKET_ADDRESS_BYTES,
  type Endpoint,
} from './socket-address.ts'

const SOCK_STREAM_NONBLOCK_CLOEXEC = 1 | 0o4000 | 0o2000000
const SOL_SOCKET = 1
const SO_REUSEADDR = 2
const SO_ERROR = 4
const SHUT_WR = 1
const SHUT_RDWR = 2
const SO_SNDBUF = 7
const SO_KEEPALIVE = 9
const IPPROTO_TCP = 6
const TCP_NODELAY = 1
const TCP_KEEPIDLE = 4
const TCP_KEEPINTVL = 5
const TCP_KEEPCNT = 6
const TCP_USER_TIMEOUT = 18
const AF_UNIX = 1
const O_CLOEXEC = 0o2000000
const F_DUPFD_CLOEXEC = 1030
const MSG_NOSIGNAL = 0x4000
const MSG_MORE = 0x8000

const calls = bindFunctions({
  socket: 'int socket(int, int, int)',
  bind: 'int bind(int, size_t, uint)',
  listen: 'int listen(int, int)',
  accept4: 'int accept4(int, size_t, size_t, int)',
  connect: 'int connect(int, size_t, uint)',
  getsockname: 'int getsockname(int, size_t, size_t)',
  getpeername: 'int getpeername(int, size_t, size_t)',
  getsockopt: 'int getsockopt(int, int, int, size_t, size_t)',
  setsockopt: 'int setsockopt(int, int, int, size_t, uint)',
  send: 'int64_t send(int, size_t, size_t, int)',
  recv: 'int64_t recv(int, size_t, size_t, int)',
  shutdown: 'int shutdown(int, int)',
  socketpair: 'int socketpair(int, int, int, size_t)',
  fcntl: 'int fcntl(int, int, int)',
  dup3: 'int dup3(int, int, int)',
})

/** Memory for results and small arguments, allocated once so that its addresses stay valid. */
const scratch = lazy(() => {
  const words = new Int32Array(2)
  const address = new Uint8Array(SOCKET_ADDRESS_BYTES)
  const wordAt = addressOf(words)
  return { words, wordAt, lengthAt: wordAt + 4, address, addressAt: addressOf(address) }
})

function setOption(fd: number, level: number, option: number, value: number): void {
  const { words, wordAt } = scratch()
  words[0] = value
  check('setsockopt', calls().setsockopt(fd, level, option, wordAt, 4))
}

function openSocket(host: string): number {
  const family = isIPv4(host) ? AF_INET : AF_INET6
  return check('socket', calls().socket(family, SOCK_STREAM_NONBLOCK_CLOEXEC, 0))
}

/**
 * Opens a non-blocking listening TCP socket. For port 0 the kernel picks a free port.
 *
 * @throws ERR_TSR_SYSTEM_CALL, or ERR_TSR_ARGUMENT if the host is not an IP address
 */
export function listenTcp(endpoint: Endpoint, backlog = 1024): { fd: number; endpoint: Endpoint } {
  const { address, addressAt } = scratch()
  const bytes = encodeSocketAddress(endpoint)
  const fd = openSocket(endpoint.host)
  try {
    setOption(fd, SOL_SOCKET, SO_REUSEADDR, 1)
    address.set(bytes)
    check('bind', calls().bind(fd, addressAt, bytes.length))
    check('listen', calls().listen(fd, backlog))
    const own = endpointBy('getsockname', fd)
    if (own === undefined) throw systemCallError('getsockname')
    return { fd, endpoint: { host: endpoint.host, port: own.port } }
  } catch (error) {
    closeNative(fd)
    throw error
  }
}

/**
 * Accepts one connection. Returns -1 if none is pending, if this process has no descriptors left (the peer
 * then waits in the kernel's queue), or for any other error.
 */
export function acceptTcp(listener: number): number {
  return calls().accept4(listener, 0, 0, SOCK_STREAM_NONBLOCK_CLOEXEC & ~1)
}

/** The IP address of the peer; '' if the connection is gone. */
export function peerAddress(fd: number): string {
  return endpointBy('getpeername', fd)?.host ?? ''
}

/** Whether both ends have the same address, so the connection is local. */
function isWithinHost(fd: number): boolean {
  return endpointBy('getpeername', fd)?.host === endpointBy('getsockname', fd)?.host
}

function endpointBy(name: 'getpeername' | 'getsockname', fd: number): Endpoint | undefined {
  const { words, address, addressAt, lengthAt } = scratch()
  words[1] = SOCKET_ADDRESS_BYTES
  return calls()[name](fd, addressAt, lengthAt) < 0 ? undefined : decodeSocketAddress(address)
}

/**
 * Starts a non-blocking connect, which finishes when the socket becomes writable. `connectError` then
 * returns the outcome.
 *
 * @throws ERR_TSR_SYSTEM_CALL, or ERR_TSR_ARGUMENT if the host is not an IP address
 */
export function connectTcp(endpoint: Endpoint): number {
  const { address, addressAt } = scratch()
  const bytes = encodeSocketAddress(endpoint)
  const fd = openSocket(endpoint.host)
  address.set(bytes)
  if (calls().connect(fd, addressAt, bytes.length) < 0) {
    const errno = lastErrno()
    // A connect interrupted by a signal also continues in the background.
    if (errno !== EINPROGRESS && errno !== EINTR) {
      closeNative(fd)
      throw systemCallError('connect', errno)
    }
  }
  return fd
}

/** Shuts down a connection: in both directions, or only for sending. The descriptor stays open. */
export function shutdownSocket(fd: number, which: 'both' | 'sending'): void {
  calls().shutdown(fd, which === 'both' ? SHUT_RDWR : SHUT_WR)
}

/**
 * Inserts a socket pair between a connection and the owner of its descriptor `fd`. From then on, data
 * written to `fd` is read from `inner`, and data written to `inner` is read from `fd`. `outer` is the
 * connection. An epoll that watches `fd` still watches the connection.
 *
 * @throws ERR_TSR_SYSTEM_CALL
 */
export function divertSocket(fd: number): { readonly inner: number; readonly outer: number } {
  const { socketpair, fcntl, dup3 } = calls()
  const ends = new Int32Array(2)
  const type = SOCK_STREAM_NONBLOCK_CLOEXEC
  check('socketpair', socketpair(AF_UNIX, type, 0, addressOf(ends)))
  const [inner = -1, end = -1] = ends
  try {
    const outer = check('fcntl', fcntl(fd, F_DUPFD_CLOEXEC, 0))
    check('dup3', dup3(end, fd, O_CLOEXEC))
    return { inner, outer }
  } catch (error) {
    closeNative(inner)
    throw error
  } finally {
    closeNative(end)
  }
}

/** The errno of a finished non-blocking connect; 0 on success. */
export function connectError(fd: number): number {
  const { words, wordAt, lengthAt } = scratch()
  words[1] = 4
  check('getsockopt', calls().getsockopt(fd, SOL_SOCKET, SO_ERROR, wordAt, lengthAt))
  return words[0]!
}

/**
 * Send buffer in bytes of a connection within a host; the kernel doubles it. By default it grows to 4
 * MiB, and the data leaves the caches before the receiver reads it: a 16 MiB all-reduce between four
 * ranks took almost twice as long. Between hosts, the kernel sizes the buffer for the network.
 */
const SEND_BUFFER_WITHIN_HOST = 256 * 1024

/**
 * Sets the options of a data connection: no Nagle delay, keep-alive probes, and a cache-sized send
 * buffer within a host. `userTimeout` is the milliseconds that data may remain unacknowledged, for
 * example after a pulled cable.
 */
export function tuneTcp(fd: number, userTimeout: number): void {
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1)
  if (isWithinHost(fd)) setOption(fd, SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_WITHIN_HOST)
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1)
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10)
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5)
  setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 6)
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, userTimeout)
}

/**
 * Sends up to `length` bytes from `address`. Returns the number of bytes sent, or the negative errno
 * (`-EAGAIN` if the socket is full). `more` announces that another send follows immediately.
 */
export function sendBytes(fd: number, address: number, length: number, more: boolean): number {
  const sent = calls().send(fd, address, length, more ? MSG_NOSIGNAL | MSG_MORE : MSG_NOSIGNAL)
  return sent >= 0 ? sent : -lastErrno()
}

/**
 * Receives up to `length` bytes into `address`. Returns their number, 0 at the end of the stream, or
 * the negative errno.
 */
export function receiveBytes(fd: number, address: number, length: number): number {
  const received = calls().recv(fd, address, length, 0)
  return received >= 0 ? received : -lastErrno()
}
