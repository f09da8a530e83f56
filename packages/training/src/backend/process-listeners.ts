const events = ['uncaughtException', 'unhandledRejection'] as const

/**
 * Runs `load` and takes away the listeners for uncaught errors that it leaves on the process.
 *
 * The generated code of the wasm backend installs two that throw the error again: the process would
 * end with another exit code, after pages of minified source, and its report would name a rejection.
 */
export async function withoutErrorListeners(load: () => Promise<void>): Promise<void> {
  const before = new Set(events.flatMap((event) => process.rawListeners(event)))
  try {
    await load()
  } finally {
    for (const event of events) {
      for (const listener of process.rawListeners(event)) {
        if (!before.has(listener)) process.removeListener(event, listener as () => void)
      }
    }
  }
}
