import type { Store } from '@tsrun/store'
import type { Interruption, Interrupts } from '../terminate/interrupts.ts'
import { keys, parse, post } from './messages.ts'
import type { NodeFacts } from './node-plan.ts'

interface SharedInterrupt {
  readonly by: number
  readonly exitCode: number
  readonly reason: string
  /** Without grace. */
  readonly now: boolean
}

/** Passes Ctrl-C and other signals of one host on to all others, and theirs to this one. */
export async function shareInterrupts(
  store: Store,
  own: NodeFacts,
  interrupts: Interrupts,
): Promise<void> {
  const tell = (now: boolean): void => {
    const { exitCode, reason = 'nobody reads the output' } = interrupts.stop.reason as Interruption
    const where = ` on node ${own.nodeRank} (${own.host})`
    const message: SharedInterrupt = { by: own.nodeRank, exitCode, reason: reason + where, now }
    if (!foreign) post(store, keys.interrupt, message).catch(() => undefined)
  }
  let foreign = false
  await store.watch(keys.interrupt, ({ value }) => {
    const message = value && (parse(value) as SharedInterrupt)
    if (message === undefined || message.by === own.nodeRank) return
    if (!interrupts.stop.aborted) {
      foreign = true
      interrupts.interrupt({ exitCode: message.exitCode, reason: message.reason })
    }
    if (message.now) interrupts.force()
  })
  for (const [signal, now] of [
    [interrupts.stop, false],
    [interrupts.kill, true],
  ] as const) {
    if (signal.aborted) tell(now)
    signal.addEventListener('abort', () => {
      tell(now)
    })
  }
}
