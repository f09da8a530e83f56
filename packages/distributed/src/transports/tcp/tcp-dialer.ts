import { setTimeout as sleep } from 'node:timers/promises'
import { isTsrError } from '@tsrun/core'
import {
  acceptTcp,
  addressOf,
  closeSocket,
  connectError,
  connectTcp,
  EADDRINUSE,
  errnoName,
  listenTcp,
  pollFds,
  POLLOUT,
} from '@tsrun/native'
import { listenAtFreePort, type ListenOptions } from '../listen.ts'
import type { Dialer, Endpoint } from '../mesh.ts'
import { DescriptorChannel } from './descriptor-channel.ts'

/** Listens with a libc socket. */
export async function openTcpDialer(options: ListenOptions): Promise<Dialer<DescriptorChannel>> {
  const { fd: listener, endpoint } = await listenAtFreePort(
    options,
    (port) => listenTcp({ host: options.host, port }),
    (error) => isTsrError(error) && error.facts['errno'] === EADDRINUSE,
  )
  let listening = true
  return {
    endpoint,
    async accept() {
      while (listening) {
        const fd = tryAccept(listener)
        if (fd >= 0) return new DescriptorChannel(fd)
        await sleep(1)
      }
      throw new Error('stopped listening')
    },
    async dial(to: Endpoint, signal?: AbortSignal) {
      const fd = connectTcp(to)
      const pollfd = Int32Array.of(fd, POLLOUT)
      try {
        while (pollFds(addressOf(pollfd), 1, 0) === 0) {
          signal?.throwIfAborted()
          await sleep(1)
        }
        const errno = connectError(fd)
        if (errno !== 0) throw new Error(`connect failed with ${errnoName(errno)}`)
      } catch (error) {
        closeSocket(fd)
        throw error
      }
      return new DescriptorChannel(fd)
    },
    stopListening() {
      if (listening) closeSocket(listener)
      listening = false
    },
  }
}

/** -1 also when this process has no descriptor left for the moment: the caller waits in the queue. */
function tryAccept(listener: number): number {
  try {
    return acceptTcp(listener)
  } catch {
    return -1
  }
}
