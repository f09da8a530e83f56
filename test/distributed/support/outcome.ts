import type { TsrError } from '@tsrun/core'

/** The error that a call ends with, or undefined. */
export async function errorOf(call: () => PromiseLike<unknown>): Promise<TsrError | undefined> {
  try {
    await call()
    return undefined
  } catch (error) {
    return error as TsrError
  }
}

/** The error that a call throws at once, or undefined. */
export function thrownBy(call: () => unknown): TsrError | undefined {
  try {
    call()
    return undefined
  } catch (error) {
    return error as TsrError
  }
}

/** Lets the event loop go round `times` times. */
export async function turns(times: number): Promise<void> {
  for (let i = 0; i < times; i++) await new Promise((resolve) => setImmediate(resolve))
}
