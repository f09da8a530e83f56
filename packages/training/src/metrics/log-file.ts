import { appendFile, closeSync, constants, fstatSync, readSync } from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import { argumentError, createLogger, makeFolders, openFile, writeWhole } from '@tsrun/core'

const { O_APPEND, O_CREAT, O_RDWR } = constants
/** Log files are also opened for reading, to check the last byte. */
const APPENDING = O_RDWR | O_APPEND | O_CREAT
const append = promisify(appendFile)

/** The capacity of the write buffer in bytes, and the delay in milliseconds before it is written. */
const [BYTES, INTERVAL] = [64 * 1024, 1000]

/**
 * Appends to a file in the background. When the process exits, the buffer is written synchronously.
 *
 * @param begin - returns bytes to write first, given the size and the last byte of an existing file
 */
export function openLog(
  path: string,
  begin: (size: number, last: number | undefined) => Uint8Array,
) {
  let waiting: Uint8Array[] = []
  let bytes = 0
  let fd: number | undefined
  /** Settles when all previous writes have completed; rejects if one failed. */
  let writes = Promise.resolve()
  let timer: NodeJS.Timeout | undefined
  let isClosed = false

  const open = () => {
    makeFolders(dirname(path))
    const opened = openFile(path, APPENDING)
    try {
      const { size } = fstatSync(opened)
      const last = Buffer.alloc(1)
      if (size > 0) readSync(opened, last, 0, 1, size - 1)
      writeWhole(opened, begin(size, size > 0 ? last[0] : undefined))
      return opened
    } catch (error) {
      closeSync(opened)
      throw error
    }
  }
  const onExit = () => {
    if (bytes === 0) return
    try {
      fd ??= open()
      writeWhole(fd, Buffer.concat(waiting))
    } catch (error) {
      // The process is exiting, so no caller can catch the error.
      const facts = { path, reason: (error as Error).message }
      createLogger('training').warn(facts, 'the last metrics could not be written')
    }
  }
  const start = () => {
    clearTimeout(timer)
    timer = undefined
    if (bytes === 0) return
    const content = Buffer.concat(waiting)
    waiting = []
    bytes = 0
    writes = writes.then(async () => {
      fd ??= open()
      await append(fd, content)
    })
    // Ignore the error here: `flush` and `close` throw it.
    writes.catch(() => undefined)
  }
  const flush = async () => {
    start()
    await writes
  }
  /** @throws ERR_TSR_ARGUMENT after `close` */
  const write = (content: Uint8Array) => {
    if (isClosed) throw argumentError(path, 'a closed log', 'no more metrics after close()')
    waiting.push(content)
    bytes += content.length
    if (bytes >= BYTES) start()
    else timer ??= setTimeout(start, INTERVAL).unref()
  }
  process.once('exit', onExit)
  return {
    write,
    flush,
    async close() {
      isClosed = true
      process.removeListener('exit', onExit)
      try {
        await flush()
      } finally {
        if (fd !== undefined) closeSync(fd)
        fd = undefined
      }
    },
  }
}
