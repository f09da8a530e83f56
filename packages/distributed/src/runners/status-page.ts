import { closeSync, constants, fstatSync, openSync, readSync, writeSync } from 'node:fs'
import { createLogger, monotonicNow, openFile } from '@tsrun/core'
import {
  addressOf,
  closeNative,
  isAvailable,
  mapFileOver,
  openNative,
  statusOf,
} from '@tsrun/native'
import {
  headerWord,
  STATUS_HEADER_BYTES,
  STATUS_MAGIC,
  STATUS_SLOT_BYTES,
  StatusSlot,
} from '../record/status-slot.ts'
import type { SharedJournal } from '../diagnosis/journal.ts'
import type { StatusPlace } from '../diagnosis/status-publisher.ts'

/** Milliseconds between two copies of the slot to the page, if the page cannot be mapped. */
const PERIOD = 250

/**
 * Opens this rank's slot of the status page and fills in the identity of the rank. Returns
 * undefined if there is no page.
 */
export function openStatus(env: NodeJS.ProcessEnv, rank: number): StatusPlace | undefined {
  const { TSRUN_STATUS_PAGE: path, TSRUN_LOCAL_RANK } = env
  const LOCAL_RANK = TSRUN_LOCAL_RANK ?? env['LOCAL_RANK']
  if (path === undefined || path === '') return undefined
  try {
    const index = Number(LOCAL_RANK ?? 0)
    const isMapped = isAvailable().available
    checkPage(path)
    const buffer = isMapped ? mapPage(path) : copyPage(path)
    const slot = new StatusSlot(buffer, index)
    slot.set('rank', rank)
    slot.set('step', NaN)
    slot.set('loss', NaN)
    slot.setState('running', monotonicNow())
    slot.set('pid', process.pid)
    return { buffer, index, copyTo: isMapped ? undefined : path }
  } catch (error) {
    const reason = (error as Error).message
    createLogger('distributed').warn({ reason }, 'no status page: tsrun ps does not show this rank')
    return undefined
  }
}

/** Protects a file that is no status page from being overwritten. @throws Error for such a file */
function checkPage(path: string): void {
  const fd = openFile(path)
  try {
    const magic = new Int32Array(1)
    readSync(fd, magic, 0, 4, headerWord.magic * 4)
    if (magic[0] !== STATUS_MAGIC) throw new Error(`${path} is not a status page`)
  } finally {
    closeSync(fd)
  }
}

function copyPage(path: string): SharedArrayBuffer {
  const fd = openFile(path)
  try {
    const copy = new SharedArrayBuffer(fstatSync(fd).size)
    copyHeader(fd, copy)
    return copy
  } finally {
    closeSync(fd)
  }
}

function mapPage(path: string): SharedArrayBuffer {
  const fd = openNative(path, constants.O_RDWR)
  try {
    const bytes = Number(statusOf(fd).size)
    const pages = bytes / 65536
    const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
    const buffer = memory.buffer as unknown as SharedArrayBuffer
    mapFileOver(fd, addressOf(new Uint8Array(buffer)), bytes)
    return buffer
  } finally {
    closeNative(fd)
  }
}

function copyHeader(fd: number, buffer: SharedArrayBuffer): void {
  const header = new Uint8Array(STATUS_HEADER_BYTES)
  readSync(fd, header, 0, STATUS_HEADER_BYTES, 0)
  new Uint8Array(buffer).set(header)
}

/**
 * Copies this rank's slot and link counters to the page at intervals, and reads the header of the
 * page. This replaces a mapping on hosts without koffi. The page is opened for each copy, because
 * the program may close any descriptor, and its number may then belong to another file.
 */
export function copyStatus({ page, counters }: Pick<SharedJournal, 'page' | 'counters'>): void {
  if (page?.copyTo === undefined) return
  const { buffer, index, copyTo } = page
  const local = new Uint8Array(buffer)
  const at = STATUS_HEADER_BYTES + index * STATUS_SLOT_BYTES
  const copy = (): void => {
    let fd: number
    try {
      fd = openSync(copyTo, 'r+')
    } catch {
      // The launcher has ended, or this process has too many open files. The next interval tries
      // again.
      return
    }
    try {
      writeSync(fd, local.slice(at, at + STATUS_SLOT_BYTES), 0, STATUS_SLOT_BYTES, at)
      if (counters.buffer === buffer) {
        writeSync(
          fd,
          new Uint8Array(counters.slice().buffer),
          0,
          counters.byteLength,
          counters.byteOffset,
        )
      }
      copyHeader(fd, buffer)
    } finally {
      closeSync(fd)
    }
  }
  copy()
  setInterval(copy, PERIOD).unref()
}
