const offset = Number(process.hrtime.bigint()) / 1e6 - performance.now()

/** Milliseconds on the monotonic clock (`process.hrtime`) that all processes of a host share. */
export function now(): number {
  return performance.now() + offset
}

/** A time of `performance.now()`, which counts from the start of its process, on the shared clock. */
export function onSharedClock(performanceNow: number): number {
  return performanceNow + offset
}
