import type { ProcessGroup } from '@tsrun/distributed'
import { errorOf } from './outcome.ts'

export type Call = (group: ProcessGroup) => PromiseLike<unknown>

/** Runs the call, and others after it until one fails: small calls may end before it is noticed. */
export async function failureOf(group: ProcessGroup, call: Call): Promise<Error | undefined> {
  return (
    (await errorOf(() => call(group))) ??
    (await errorOf(() => group.barrier())) ??
    (await errorOf(() => group.barrier()))
  )
}
