import { constants } from 'node:fs'
import { addressOf, bindFunctions, check, closeNative, lazy, openNative, statusOf } from './libc.ts'

const { O_NONBLOCK, O_RDWR, O_WRONLY } = constants
/** Flags of a pipe and of an eventfd. */
const NONBLOCK_CLOEXEC = 0o4000 | 0o2000000

const calls = bindFunctions({
  pipe: 'int pipe2(size_t, int)',
  eventfd: 'int eventfd(uint, int)',
  read: 'int64_t read(int, size_t, size_t)',
  write: 'int64_t write(int, size_t, size_t)',
})

const SINK_BYTES = 4096
const buffers = lazy(() => {
  // A write to an eventfd must have eight bytes.
  const [one, sink] = [BigUint64Array.of(1n), new Uint8Array(SINK_BYTES)]
  return { one: addressOf(one), sink: addressOf(sink), held: [one, sink] }
})

/** Identifies a bell for other processes of the host. */
export interface BellAddress {
  readonly fd: number
  readonly inode: number
}

/**
 * Creates a bell: a pipe that `ringBell` makes readable. Other processes of the host open it by its
 * address. When its owner's last descriptor closes, even by a crash, `poll` reports POLLERR to all
 * processes that opened it.
 */
export function createBell(): number {
  const ends = new Int32Array(2)
  check('pipe2', calls().pipe(addressOf(ends), NONBLOCK_CLOEXEC))
  const [reader, writer] = ends as unknown as [number, number]
  try {
    return openAgain(reader)
  } catch {
    // Without /proc, only threads of this process can ring the bell.
    return check('eventfd', calls().eventfd(0, NONBLOCK_CLOEXEC))
  } finally {
    closeNative(reader)
    closeNative(writer)
  }
}

/** Opens another descriptor of a bell of this process, which keeps the bell alive. */
export function openAgain(bell: number): number {
  // Open both ends: without a writer, the reader would get a hang-up.
  return openNative(`/proc/self/fd/${bell}`, O_RDWR | O_NONBLOCK)
}

/** The address by which other processes of the host open the bell. */
export function addressOfBell(bell: number): BellAddress {
  return { fd: bell, inode: Number(statusOf(bell).ino) }
}

/**
 * Opens the wake-up pipe (the bell) of process `pid`, to wake the process and to detect its end.
 *
 * @throws Error saying why the bell cannot be opened
 */
export function openBell(pid: number, { fd, inode }: BellAddress): number {
  const path = `/proc/${pid}/fd/${fd}`
  const bell = openNative(path, O_WRONLY | O_NONBLOCK)
  const stats = statusOf(bell)
  if (stats.isFIFO() && Number(stats.ino) === inode) return bell
  closeNative(bell)
  throw new Error(`descriptor ${fd} of process ${pid} is another file`)
}

/** Rings a bell. Ignores a full pipe and an owner that is gone. */
export function ringBell(bell: number): void {
  calls().write(bell, buffers().one, 8)
}

/** Resets a bell of this process until it is rung again. */
export function silenceBell(bell: number): void {
  let taken: number
  do {
    taken = calls().read(bell, buffers().sink, SINK_BYTES)
  } while (taken === SINK_BYTES)
}
