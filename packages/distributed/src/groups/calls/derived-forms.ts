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
import { repeatedNames, type Arguments } from './repeated-calls.ts'

/** The calls on objects. Each runs several operations. */
const objectCalls = [
  'sendObject',
  'recvObject',
  'broadcastObject',
  'allGatherObject',
  'gatherObject',
  'scatterObject',
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

type Forms = Pick<
  BlockingCalls,
  `${OperationName | (typeof objectCalls)[number]}Sync` | 'batchIsendIrecvSync'
> &
  Pick<PersistentCalls, `${(typeof persistentCalls)[number]}Init`>

class Base {
  declare readonly operations: Starter

  constructor(operations: Starter) {
    // Not enumerable, so that printing a group does not show its engine.
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

function startSync(group: AsyncCalls, name: string, args: readonly unknown[]): unknown {
  return group.operations.inMode('awaited', () => group[name]!(...args)).wait()
}

const repeatable: readonly string[] = repeatedNames

for (const name of [...Object.keys(operationCodes), ...objectCalls]) {
  if (repeatable.includes(name)) continue
  Object.assign(Base.prototype, {
    [`${name}Sync`](this: AsyncCalls, ...args: unknown[]): unknown {
      return startSync(this, name, args)
    },
  })
}

/** Runs a blocking call that is not prepared. If it is the third in a row, prepares it first. */
function repeatSync(group: AsyncCalls, kind: number, args: Arguments): void {
  const { operations } = group
  const name = repeatedNames[kind]!
  const prepare = () => operations.inMode('prepared', () => group[name]!(...args))
  if (operations.repeated?.note(kind, args, prepare) !== true) startSync(group, name, args)
  else operations.repeated.run(kind, ...args)
}

function withoutPadding(args: Arguments): readonly unknown[] {
  return args.slice(0, 1 + args.findLastIndex((arg) => arg !== undefined))
}

for (const [kind, name] of repeatedNames.entries()) {
  Object.assign(Base.prototype, {
    [`${name}Sync`](this: AsyncCalls, a?: unknown, b?: unknown, c?: unknown, d?: unknown): unknown {
      // If a wrapper replaces the method, pass it the original arguments without padding.
      if (Object.hasOwn(this, name)) return startSync(this, name, withoutPadding([a, b, c, d]))
      if (this.operations.repeated?.run(kind, a, b, c, d) !== true)
        repeatSync(this, kind, [a, b, c, d])
      return undefined
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
