import { getSystemErrorName } from 'node:util'

/** Linux error numbers that callers tell apart. */
export const EINTR = 4
export const EAGAIN = 11
export const EPIPE = 32
export const EADDRINUSE = 98
export const ECONNRESET = 104
export const ETIMEDOUT = 110
export const ECONNREFUSED = 111
export const EINPROGRESS = 115

/** For people: ECONNRESET for 104. */
export function errnoName(errno: number): string {
  return getSystemErrorName(-errno)
}
