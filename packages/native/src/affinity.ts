import { readdirSync } from 'node:fs'
import { addressOf, bindFunctions, check } from './libc.ts'

/** Bytes of a mask of 8192 cores, the Linux maximum. The cpu_set_t of libc holds only 1024. */
const SET_BYTES = 1024
const BITS = [0, 1, 2, 3, 4, 5, 6, 7]
const THIS_THREAD = 0

const calls = bindFunctions({
  get: 'int sched_getaffinity(int, size_t, size_t)',
  set: 'int sched_setaffinity(int, size_t, size_t)',
  current: 'int sched_getcpu()',
})

/** The cores that this thread may run on, in ascending order. */
export function allowedCores(): number[] {
  return [...readSet().entries()].flatMap(([at, byte]) =>
    byte === 0 ? [] : BITS.filter((bit) => (byte & (1 << bit)) !== 0).map((bit) => 8 * at + bit),
  )
}

/** The number of the core on which this thread runs at the moment. */
export function currentCore(): number {
  return calls().current()
}

/**
 * Moves this thread to a core once. The kernel may move it again later.
 *
 * @returns false if the thread may not run there, for example because the cores of its container
 *   changed
 */
export function moveToCore(core: number): boolean {
  const before = readSet()
  const only = new Uint8Array(SET_BYTES)
  only[core >> 3] = 1 << (core & 7)
  if (!writeSet(only)) return false
  return writeSet(before)
}

/**
 * Restricts this process to some cores: its existing threads, and all threads that they start
 * later.
 *
 * @returns false if it may run on none of them, or if a number is not that of a core
 */
export function stayOnCores(cores: readonly number[]): boolean {
  if (!cores.every((core) => Number.isInteger(core) && core >= 0 && core < 8 * SET_BYTES))
    return false
  const set = new Uint8Array(SET_BYTES)
  for (const core of cores) set[core >> 3]! |= 1 << (core & 7)
  const threads = readdirSync('/proc/self/task').map(Number)
  return threads.every((thread) => writeSet(set, thread))
}

function readSet(): Uint8Array {
  const set = new Uint8Array(SET_BYTES)
  check('sched_getaffinity', calls().get(THIS_THREAD, SET_BYTES, addressOf(set)))
  return set
}

function writeSet(set: Uint8Array, thread = THIS_THREAD): boolean {
  return calls().set(thread, SET_BYTES, addressOf(set)) === 0
}
