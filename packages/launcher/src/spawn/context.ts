import { Writable } from 'node:stream'
import type { JobContext } from '../job/job.ts'
import { createChaos } from '../job/chaos/chaos.ts'
import type { ChaosPlan } from '../job/chaos/plan.ts'
import { Announcer, Console } from '../logs/console.ts'
import type { Interrupts } from '../job/process/interrupts.ts'
import type { Interruption } from '../protocol/nodes.ts'
import type { CompleteOptions } from './options.ts'

/** Why a job was stopped before its ranks ended. */
export type StopReason = 'aborted' | 'timeout'

/** The context of a job inside a program, whose signals and streams stay unchanged. */
export interface SpawnContext extends JobContext {
  /** Undefined if the job was not stopped. */
  readonly stopReason: () => StopReason | undefined
  readonly release: () => void
}

export function createContext(
  { output, signal, timeout }: CompleteOptions,
  plan: ChaosPlan | undefined,
  disposal: AbortSignal,
): SpawnContext {
  const console = new Console(
    { stdout: forwardTo(process.stdout), stderr: forwardTo(process.stderr) },
    () => undefined,
  )
  let reason: StopReason | undefined
  const stop = new AbortController()
  const end = (why: StopReason): void => {
    reason ??= why
    stop.abort({ exitCode: 1, reason: undefined } satisfies Interruption)
  }
  const abort = (): void => {
    end('aborted')
  }
  signal?.addEventListener('abort', abort)
  disposal.addEventListener('abort', abort)
  if (signal?.aborted === true || disposal.aborted) abort()
  const timer = timeout === undefined ? undefined : setTimeout(end, timeout, 'timeout')
  const interrupts: Interrupts = {
    stop: stop.signal,
    kill: new AbortController().signal,
    handle: () => undefined,
    interrupt: () => undefined,
    force: () => undefined,
  }
  const announcer = new Announcer(console, 'pretty')
  return {
    console,
    announcer,
    chaos: plan && createChaos(plan, announcer, undefined),
    interrupts,
    onLine:
      typeof output === 'function'
        ? (rank, stream, { text }) => {
            output({ rank, stream, text })
          }
        : undefined,
    stopReason: () => reason,
    release: () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
    },
  }
}

/**
 * Wraps a stream, so that the program's own listeners are unaffected. Passes no callback to `write`,
 * because the program may have replaced `write` with a function that ignores callbacks.
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
