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

/** Lets the event loop go round until this holds; fails after 20 s. */
export async function eventually(holds: () => boolean): Promise<void> {
  const deadline = performance.now() + 20_000
  while (!holds()) {
    if (performance.now() > deadline) throw new Error(`still not: ${String(holds)}`)
    await turns(1)
  }
}
