/** What a terminal takes for a command: all control characters but tab and line feed. */

const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f]/

const COLOUR_OR_CONTROL = /\x1b\[[\d;:]*m|[\0-\x08\x0b-\x1f\x7f-\x9f]/g

/**
 * Text that others have written, as it can be shown on a terminal: control characters, with which it
 * could move the cursor, hide lines or type commands, become signs that stand for them. Tabs and line
 * feeds stay.
 *
 * @param colours - whether colour codes pass; otherwise they are left out
 */
export function visibleText(text: string, colours = false): string {
  if (!CONTROL.test(text)) return text
  return text.replace(COLOUR_OR_CONTROL, (found) => {
    if (found.length > 1) return colours ? found : ''
    const code = found.charCodeAt(0)
    if (code === 0x7f) return '␡'
    // the control pictures of Unicode: ␛ for escape
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\\x${code.toString(16)}`
  })
}
