import { closeSync, openSync, readSync } from 'node:fs'
import { addressOf, addressSpaceLimit, isAvailable } from '@tsrun/native'

/** The address space of a process. With less, memory of WebAssembly may move when it grows. */
const WHOLE_SPACE = 2 ** 47

/** A file of the memory of this process. */
let file: number | undefined
let isTried = false

/**
 * Opens the memory of this process as a file, which every thread can read at the addresses of
 * `addressOf`. Returns undefined if that is impossible, as on other systems than Linux.
 */
export function openOwnMemory(): number | undefined {
  if (!isTried) file = tryOpen()
  isTried = true
  return file
}

function tryOpen(): number | undefined {
  if (!isAvailable().available || addressSpaceLimit() < WHOLE_SPACE) return undefined
  let opened: number | undefined
  try {
    opened = openSync('/proc/self/mem', 'r')
    const bytes = crypto.getRandomValues(new Uint8Array(1024))
    const copy = new Uint8Array(bytes.length)
    readSync(opened, copy, 0, copy.length, addressOf(bytes))
    if (Buffer.compare(bytes, copy) === 0) return opened
  } catch {
    // The permission model, a sandbox or the kernel forbids it.
  }
  if (opened !== undefined) closeSync(opened)
  return undefined
}
