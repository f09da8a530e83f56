import { Writable } from 'node:stream'
import type { Surroundings } from '../job/attempt.ts'
import { Announcer, Console } from '../logs/console.ts'
import type { Interruption, Interrupts } from '../processes/interrupts.ts'
import type { CompleteOptions } from './options.ts'

/** What ends a job before its ranks do. */
export type Ending = 'aborted' | 'timeout'

/** Surroundings of a job within a program: neither its signals nor its streams are taken over. */
export interface LibrarySurroundings extends Surroundings {
  /** Why the job was stopped, if it was. */
  readonly ending: () => Ending | undefined
  readonly release: () => void
}

export function createSurroundings(options: CompleteOptions): LibrarySurroundings {
  const { output, signal, timeout } = options
  const console = new Console(
    { stdout: forwardTo(process.stdout), stderr: forwardTo(process.stderr) },
    () => undefined,
  )
  let ending: Ending | undefined
  const stop = new AbortController()
  const end = (how: Ending): void => {
    ending ??= how
    stop.abort({ exitCode: 1, reason: undefined } satisfies Interruption)
  }
  const abort = (): void => {
    end('aborted')
  }
  signal?.addEventListener('abort', abort)
  if (signal?.aborted === true) abort()
  const timer = timeout === undefined ? undefined : setTimeout(end, timeout, 'timeout')
  const interrupts: Interrupts = {
    stop: stop.signal,
    kill: new AbortController().signal,
    interrupt: () => undefined,
    force: () => undefined,
  }
  return {
    console,
    announcer: new Announcer(console, 'pretty'),
    interrupts,
    ...(typeof output === 'function'
      ? {
          onLine: (rank, stream, { text }) => {
            output({ rank, stream, text })
          },
        }
      : {}),
    ending: () => ending,
    release: () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
    },
  }
}

/**
 * With listeners of its own: those of the program's streams stay as they are. A program may have put
 * another `write` in their place, which does not call back.
 */
function forwardTo(stream: NodeJS.WriteStream): Writable {
  return new Writable({
    write: (chunk: Buffer, _, done) => {
      const isFull = !stream.write(chunk) && stream.writableNeedDrain && !stream.destroyed
      if (!isFull) {
        done()
        return
      }
      const goOn = (): void => {
        stream.off('drain', goOn).off('close', goOn)
        done()
      }
      stream.on('drain', goOn).on('close', goOn)
    },
  })
}
