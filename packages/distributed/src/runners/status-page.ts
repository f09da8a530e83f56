import { closeSync, constants } from 'node:fs'
import { createLogger, monotonicNow, openFile } from '@tsrun/core'
import { addressOf, closeNative, mapFileOver, openNative, statusOf } from '@tsrun/native'
import { readHeader } from '../record/status-page.ts'
import { StatusSlot } from '../record/status-slot.ts'

/**
 * Opens this rank's slot of the status page and fills in the identity of the rank. Returns
 * undefined if there is no page.
 */
export function openStatus(env: NodeJS.ProcessEnv, rank: number): StatusSlot | undefined {
  const { TSRUN_STATUS_PAGE: path, LOCAL_RANK, TSRUN_LOCAL_RANK = LOCAL_RANK } = env
  if (path === undefined || path === '') return undefined
  try {
    const slot = new StatusSlot(mapPage(path), Number(TSRUN_LOCAL_RANK ?? 0))
    slot.set('rank', rank)
    slot.set('step', NaN)
    slot.set('loss', NaN)
    slot.setState('running', monotonicNow())
    slot.set('pid', process.pid)
    return slot
  } catch (error) {
    const reason = (error as Error).message
    createLogger('distributed').warn({ reason }, 'no status page: tsrun ps does not show this rank')
    return undefined
  }
}

/** @throws Error if the file is not a status page, or cannot be mapped */
function mapPage(path: string): ArrayBuffer {
  const opened = openFile(path)
  try {
    readHeader(opened)
  } finally {
    closeSync(opened)
  }
  // Node's permission model forbids node:fs to open the page for writing, and libc does not know the
  // descriptors of Deno's node:fs.
  const fd = openNative(path, constants.O_RDWR)
  try {
    const bytes = Number(statusOf(fd).size)
    const pages = bytes / 65536
    const { buffer } = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
    mapFileOver(fd, addressOf(new Uint8Array(buffer)), bytes)
    return buffer
  } finally {
    closeNative(fd)
  }
}
