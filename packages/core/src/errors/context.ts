import type { TsrError } from './tsr-error.ts'

/** Prefixes the message and the stack of an error with the label of a call, and adds it to its facts. */
export function addLabel(error: TsrError, label: string): void {
  const { message, facts, stack } = error
  error.message = `${label}: ${message}`
  if (stack !== undefined) error.stack = stack.replace(message, () => error.message)
  const { label: inner } = facts
  const labels = inner === undefined ? label : `${label}: ${String(inner)}`
  Object.assign(error, { facts: { ...facts, label: labels } })
}

/** Puts stack lines on top of those of an error, unless it shows the place of the first one. */
export function addFrames(error: { stack?: string }, frames: readonly string[]): void {
  const [first] = frames
  const { stack = '' } = error
  if (first === undefined) return
  // The line, without the column: an `await` has another one than the call.
  const place = /[^\s(]+:\d+:(?=\d+\)?$)/.exec(first)?.[0] ?? first
  if (stack.includes(place)) return
  const start = stack.indexOf('\n    at ')
  const end = start < 0 ? stack.length : start
  error.stack = `${stack.slice(0, end)}\n${frames.join('\n')}${stack.slice(end)}`
}
