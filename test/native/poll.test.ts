import { once } from 'node:events'
import { closeSync } from 'node:fs'
import {
  addressOf,
  createBell,
  pollFds,
  POLLFD_BYTES,
  POLLIN,
  ringBell,
  silenceBell,
  yieldCore,
} from '@tsrun/native'
import { describeNative, startWorker } from './support.ts'

describeNative('a bell', () => {
  const fds: number[] = []
  const open = (): number => {
    const fd = createBell()
    fds.push(fd)
    return fd
  }
  afterEach(() => {
    fds.splice(0).forEach(closeSync)
  })

  /** The descriptors that are readable within `timeout` milliseconds, and what poll answered. */
  function poll(watched: number[], timeout: number): { ready: number; readable: number[] } {
    const pollfds = new DataView(new ArrayBuffer(watched.length * POLLFD_BYTES))
    watched.forEach((fd, i) => {
      pollfds.setInt32(i * POLLFD_BYTES, fd, true)
      pollfds.setInt16(i * POLLFD_BYTES + 4, POLLIN, true)
    })
    const ready = pollFds(addressOf(pollfds), watched.length, timeout)
    const isReadable = (_: number, i: number): boolean =>
      (pollfds.getInt16(i * POLLFD_BYTES + 6, true) & POLLIN) !== 0
    return { ready, readable: watched.filter(isReadable) }
  }

  it('is readable after it is rung, until it is silenced', () => {
    const bell = open()
    expect(poll([bell], 0)).toEqual({ ready: 0, readable: [] })
    ringBell(bell)
    ringBell(bell)
    expect(poll([bell], 10_000)).toEqual({ ready: 1, readable: [bell] })
    silenceBell(bell)
    expect(poll([bell], 0).ready).toBe(0)
    silenceBell(bell)
  })

  it('is found by poll among many descriptors', () => {
    const bells = Array.from({ length: 40 }, open)
    ringBell(bells[7]!)
    ringBell(bells[31]!)
    expect(poll(bells, 10_000)).toEqual({ ready: 2, readable: [bells[7], bells[31]] })
  })

  it('lets poll return at the time-out', () => {
    const started = performance.now()
    expect(poll([open()], 20).ready).toBe(0)
    expect(performance.now() - started).toBeGreaterThanOrEqual(19)
  })

  it('wakes a blocked thread from another one', async () => {
    const bell = open()
    const worker = startWorker('bell-worker.ts', bell)
    await once(worker, 'message')
    worker.postMessage('ring')
    expect(poll([bell], 10_000)).toEqual({ ready: 1, readable: [bell] })
    await worker.terminate()
  })

  it('lets other threads run while one polls', () => {
    expect(yieldCore).not.toThrow()
  })
})
