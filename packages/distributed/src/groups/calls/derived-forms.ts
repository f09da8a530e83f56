import { operationCodes, type OperationName } from '../../operation.ts'
import type {
  BatchedMessage,
  BlockingCalls,
  PersistentCalls,
  ProcessGroup,
  Work,
} from '../../process-group.ts'
import type { CallOptions } from '../../call-options.ts'
import type { Starter } from './call.ts'

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

/** The calls that can be prepared. */
const persistentCalls = [
  'send',
  'recv',
  'broadcast',
  'allReduce',
  'reduceScatter',
  'allGather',
  'barrier',
] as const

/** The blocking calls that are prepared when they are repeated. */
const repeatedCalls: readonly string[] = [
  'broadcast',
  'reduce',
  'allReduce',
  'reduceScatter',
  'allGather',
  'gather',
  'scatter',
  'allToAll',
  'barrier',
]

type Forms = Pick<
  BlockingCalls,
  `${OperationName | (typeof objectCalls)[number]}Sync` | 'batchIsendIrecvSync'
> &
  Pick<PersistentCalls, `${(typeof persistentCalls)[number]}Init`>

class Base {
  declare readonly operations: Starter

  constructor(operations: Starter) {
    // Not enumerable, so that a group that is printed does not show its engine.
    Object.defineProperty(this, 'operations', { value: operations })
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
  const canRepeat = repeatedCalls.includes(name)
  Object.assign(Base.prototype, {
    [`${name}Sync`](this: AsyncCalls, ...args: unknown[]): unknown {
      const { operations } = this
      const call = () => this[name]!(...args)
      // A wrapper that replaces the method expects a `Work`.
      if (canRepeat && !Object.hasOwn(this, name)) {
        const prepare = () => operations.inMode('prepared', call)
        if (operations.runRepeated?.(name, args, prepare) === true) return undefined
      }
      return operations.inMode('awaited', call).wait()
    },
  })
}

for (const name of persistentCalls) {
  Object.assign(Base.prototype, {
    [`${name}Init`](this: AsyncCalls, ...args: unknown[]): unknown {
      return this.operations.inMode('prepared', () => this[name]!(...args))
    },
  })
}

/**
 * The forms of calls that follow from the asynchronous form. A method with the suffix `Sync` starts
 * the asynchronous form and blocks until it has completed. A method with the suffix `Init` prepares
 * the operation instead of starting it.
 */
export const DerivedForms = Base as unknown as new (
  operations: Starter,
) => Forms & Pick<Base, 'operations'>
