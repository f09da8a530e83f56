/**
 * Formats a value as a line of JSON. Escapes the control characters that JSON allows in texts, because
 * the line may be shown on a terminal.
 */
export function jsonLine(value: unknown): string {
  const json = JSON.stringify(value).replaceAll(
    /[\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
  return `${json}\n`
}
