import { closeSync, openSync, readlinkSync } from 'node:fs'
import {
  addressOf,
  addressOfBell,
  createBell,
  openAgain,
  openBell,
  POLLERR,
  pollFds,
  POLLIN,
  ringBell,
  silenceBell,
} from '@tsrun/native'
import { describeNative } from './support.ts'

/** The events of a descriptor now. */
function eventsOf(fd: number, events: number): number {
  const pollfd = Int32Array.of(fd, events)
  pollFds(addressOf(pollfd), 1, 0)
  return pollfd[1]! >>> 16
}

describeNative('a bell', () => {
  it('is readable from when it is rung until it is silenced', () => {
    const bell = createBell()
    const rope = openBell(process.pid, addressOfBell(bell))
    expect(eventsOf(bell, POLLIN)).toBe(0)
    for (let i = 0; i < 5; i++) ringBell(rope)
    expect(eventsOf(bell, POLLIN)).toBe(POLLIN)
    silenceBell(bell)
    expect(eventsOf(bell, POLLIN)).toBe(0)
    for (const fd of [bell, rope]) closeSync(fd)
  })

  it('can be rung more often than the capacity of its pipe', () => {
    const bell = createBell()
    const rope = openBell(process.pid, addressOfBell(bell))
    for (let i = 0; i < 70_000; i++) ringBell(rope)
    silenceBell(bell)
    expect(eventsOf(bell, POLLIN)).toBe(0)
    for (const fd of [bell, rope]) closeSync(fd)
  })

  it('reports its end to its openers once its last descriptor is closed', () => {
    const bell = createBell()
    const again = openAgain(bell)
    const rope = openBell(process.pid, addressOfBell(bell))
    closeSync(bell)
    ringBell(rope)
    expect(eventsOf(rope, 0)).toBe(0)
    expect(eventsOf(again, POLLIN)).toBe(POLLIN)
    closeSync(again)
    expect(eventsOf(rope, 0)).toBe(POLLERR)
    // SIGPIPE does not end the process
    ringBell(rope)
    closeSync(rope)
  })

  it('is not readable after its ringers have closed it', () => {
    const bell = createBell()
    closeSync(openBell(process.pid, addressOfBell(bell)))
    expect(eventsOf(bell, POLLIN)).toBe(0)
    closeSync(bell)
  })

  it('is refused if its descriptor number refers to another file', () => {
    const bell = createBell()
    const address = addressOfBell(bell)
    const other = createBell()
    const file = openSync('/dev/null', 'r')
    for (const fd of [other, file]) {
      expect(() => openBell(process.pid, { ...address, fd })).toThrow('is another file')
    }
    for (const fd of [bell, other, file]) closeSync(fd)
    expect(() => readlinkSync(`/proc/self/fd/${bell}`)).toThrow('ENOENT')
  })
})
