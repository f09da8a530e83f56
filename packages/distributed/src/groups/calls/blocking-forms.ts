import { operationCodes, type OperationName } from '../../operation.ts'
import type {
  BatchedMessage,
  BlockingCalls,
  GroupCalls,
  ProcessGroup,
  Work,
} from '../../process-group.ts'
import type { CallOptions } from '../../call-options.ts'
import type { AwaitedStarter } from './call.ts'

/** The calls on objects. Each runs several operations. */
const objectCalls = [
  'sendObject',
  'recvObject',
  'broadcastObject',
  'allGatherObject',
  'gatherObject',
  'scatterObject',
  'allToAllObject',
] as const

type CallName = OperationName | (typeof objectCalls)[number]

type Forms = { [Name in CallName as `${Name}Sync`]: GroupCalls<'sync'>[Name] } & Pick<
  BlockingCalls,
  'batchIsendIrecvSync'
>

const starter = Symbol('starter')

class Base {
  readonly [starter]: AwaitedStarter

  constructor(operations: AwaitedStarter) {
    this[starter] = operations
  }

  batchIsendIrecvSync(
    this: ProcessGroup,
    messages: readonly BatchedMessage[],
    options?: CallOptions,
  ): (number | undefined)[] {
    const works = this.batchIsendIrecv(messages, options)
    return works.map((work) => work.wait() as number | undefined)
  }
}

type AsyncCalls = Base & Readonly<Record<string, (...args: unknown[]) => Work<unknown>>>

for (const name of [...Object.keys(operationCodes), ...objectCalls]) {
  Object.assign(Base.prototype, {
    [`${name}Sync`](this: AsyncCalls, ...args: unknown[]): unknown {
      return this[starter].startAwaited(() => this[name]!(...args)).wait()
    },
  })
}

/**
 * The synchronous forms of all calls. Each has a method with the suffix `Sync`, which starts the
 * asynchronous form and blocks until it has completed.
 */
export const BlockingForms = Base as unknown as new (operations: AwaitedStarter) => Forms
