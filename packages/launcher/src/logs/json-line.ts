import { visibleText } from '@tsrun/core'

/**
 * Formats a value as a line of JSON. Escapes the control characters that JSON allows in texts, because
 * the line may be shown on a terminal.
 */
export function jsonLine(value: unknown): string {
  // visibleText replaces DEL by a symbol, and the others by their escapes in JSON.
  const json = JSON.stringify(value).replaceAll('\x7f', '\\u007f')
  return `${visibleText(json)}\n`
}
