/**
 * Milliseconds on the monotonic clock (CLOCK_MONOTONIC on Linux), which all threads and processes
 * of a host share, so that their spans can be laid side by side.
 */
export function monotonicNow(): number {
  const [seconds, nanoseconds] = process.hrtime()
  return seconds * 1e3 + nanoseconds / 1e6
}
