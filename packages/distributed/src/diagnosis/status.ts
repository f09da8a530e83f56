import { closeSync, openSync, readSync, writeSync } from 'node:fs'
import { createLogger, monotonicNow } from '@tsrun/core'
import { addressOf, isAvailable, mapFileOver } from '@tsrun/native'
import { STATUS_HEADER_BYTES, STATUS_SLOT_BYTES, statusBytes, StatusSlot } from '@tsrun/telemetry'

/** Milliseconds between two copies to the page where it cannot be mapped. */
const PERIOD = 250

/** This rank's place on the status page that its launcher made. */
export interface StatusPlace {
  /** The mapped page, or a copy of it. */
  readonly buffer: SharedArrayBuffer
  readonly index: number
  /** Where the engine's thread copies the slot to; undefined: the page is mapped. */
  readonly copyTo: string | undefined
}

/** Finds the place and writes who this is; undefined where there is no page. */
export function openStatus(env: NodeJS.ProcessEnv, rank: number): StatusPlace | undefined {
  const { TSRUN_STATUS_PAGE: path, LOCAL_RANK, LOCAL_WORLD_SIZE } = env
  if (path === undefined || path === '') return undefined
  try {
    const index = Number(LOCAL_RANK ?? 0)
    const isMapped = isAvailable().available
    const buffer = openPage(path, statusBytes(Number(LOCAL_WORLD_SIZE ?? 1)), isMapped)
    const slot = new StatusSlot(buffer, index)
    slot.set('rank', rank)
    slot.set('step', NaN)
    slot.set('loss', NaN)
    slot.setState('computing', monotonicNow())
    slot.set('pid', process.pid)
    return { buffer, index, copyTo: isMapped ? undefined : path }
  } catch (error) {
    const reason = (error as Error).message
    createLogger('distributed').warn({ reason }, 'no status page: tsrun ps does not show this rank')
    return undefined
  }
}

function openPage(path: string, bytes: number, isMapped: boolean): SharedArrayBuffer {
  if (!isMapped) return new SharedArrayBuffer(bytes)
  const pages = bytes / 65536
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
  const buffer = memory.buffer as unknown as SharedArrayBuffer
  const fd = openSync(path, 'r+')
  mapFileOver(fd, addressOf(new Uint8Array(buffer)), bytes)
  closeSync(fd)
  return buffer
}

/** Without koffi: the slot goes to the page, and the header comes from it, now and then. */
export function copyStatus({ buffer, index, copyTo }: StatusPlace): void {
  if (copyTo === undefined) return
  const fd = openSync(copyTo, 'r+')
  const local = new Uint8Array(buffer)
  const at = STATUS_HEADER_BYTES + index * STATUS_SLOT_BYTES
  const copy = (): void => {
    writeSync(fd, local.slice(at, at + STATUS_SLOT_BYTES), 0, STATUS_SLOT_BYTES, at)
    const header = new Uint8Array(STATUS_HEADER_BYTES)
    readSync(fd, header, 0, STATUS_HEADER_BYTES, 0)
    local.set(header)
  }
  copy()
  setInterval(copy, PERIOD).unref()
}
