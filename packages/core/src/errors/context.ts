import type { TsrError } from './tsr-error.ts'

/** Puts the label of a call before the message of an error, and adds it to the facts. */
export function addLabel(error: TsrError, label: string): void {
  const { message, facts, stack } = error
  error.message = `${label}: ${message}`
  if (stack !== undefined) error.stack = stack.replace(message, () => error.message)
  const { label: inner } = facts
  const all = inner === undefined ? label : `${label}: ${inner}`
  Object.assign(error, { facts: { ...facts, label: all } })
}

/** Adds lines at the top of an error's stack, unless the stack already has the first line. */
export function addFrames(error: { stack?: string }, frames: readonly string[]): void {
  const [first] = frames
  const { stack = '' } = error
  if (first === undefined) return
  // Compare without the column, which differs between a call and its `await`.
  const place = /[^\s(]+:\d+:(?=\d+\)?$)/.exec(first)?.[0] ?? first
  if (stack.includes(place)) return
  const start = stack.indexOf('\n    at ')
  const end = start < 0 ? stack.length : start
  error.stack = `${stack.slice(0, end)}\n${frames.join('\n')}${stack.slice(end)}`
}
