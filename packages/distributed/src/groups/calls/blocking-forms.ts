import { operationCodes, type OperationName } from '../../engine/operation.ts'
import type { GroupCalls, Work } from '../../process-group.ts'

/** The calls on values of any shape, each made of several operations. */
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

type Forms = { [Name in CallName as `${Name}Sync`]: GroupCalls<'sync'>[Name] }

/** A class with the synchronous form of each call, which starts the operation and waits for it. */
export const BlockingForms = class {
  static {
    const names = [...Object.keys(operationCodes), ...objectCalls]
    for (const name of names) {
      Object.assign(this.prototype, {
        [`${name}Sync`](this: Record<string, (...args: unknown[]) => Work<unknown>>, ...args: unknown[]) {
          return this[name]!(...args).wait()
        },
      })
    }
  }
} as new () => Forms
