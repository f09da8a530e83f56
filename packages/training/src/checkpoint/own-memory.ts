import { closeSync, openSync, readSync } from 'node:fs'
import { addressOf, addressSpaceLimit, isAvailable } from '@tsrun/native'

/** The usual address space of a process, in bytes. If it is limited, WebAssembly memory may move. */
const WHOLE_SPACE = 2 ** 47

/** The result of `tryOpen`, which runs once. */
let opened: { readonly file: number | undefined } | undefined

/**
 * Opens the memory of this process as a file, which every thread can read at the addresses of
 * `addressOf`. Returns undefined if that is impossible, for example on systems other than Linux.
 */
export function openOwnMemory(): number | undefined {
  opened ??= { file: tryOpen() }
  return opened.file
}

function tryOpen(): number | undefined {
  if (!isAvailable().available || addressSpaceLimit() < WHOLE_SPACE) return undefined
  let file: number | undefined
  try {
    file = openSync('/proc/self/mem', 'r')
    const bytes = crypto.getRandomValues(new Uint8Array(1024))
    const copy = new Uint8Array(bytes.length)
    readSync(file, copy, 0, copy.length, addressOf(bytes))
    if (Buffer.compare(bytes, copy) === 0) return file
  } catch {
    // The permission model, a sandbox or the kernel forbids opening the file.
  }
  if (file !== undefined) closeSync(file)
  return undefined
}
