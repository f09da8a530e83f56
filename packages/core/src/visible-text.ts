/**
 * Characters that a terminal obeys: all control characters except tab and line feed, and the Unicode
 * characters that reverse the order of the text after them.
 */
const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/

const COLOUR_OR_CONTROL = /\x1b\[([\d;:]*)m|[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g

/**
 * Makes text from other programs safe to print on a terminal. Control characters could move the cursor,
 * hide lines or type commands, so visible symbols replace them. Tabs and line feeds stay.
 *
 * @param colours - true keeps colour codes, which end with their line; false removes them
 */
export function visibleText(text: string, colours = false): string {
  if (!CONTROL.test(text)) return text
  const lines = text.split('\n').map((line) => {
    const shown = line.replace(COLOUR_OR_CONTROL, (found, codes?: string) => {
      if (codes === undefined) return signOf(found.charCodeAt(0))
      return colours ? withoutConceal(codes) : ''
    })
    return shown.includes('\x1b') ? reset(shown) : shown
  })
  return lines.join('\n')
}

function reset(line: string) {
  return /\x1b\[0?m$/.test(line) ? line : `${line}\x1b[0m`
}

function signOf(code: number) {
  if (code === 0x7f) return '␡'
  // Replace the character by its Unicode control picture, such as ␛ for ESC, or else by its JSON escape.
  if (code < 0x20) return String.fromCharCode(0x2400 + code)
  return `\\u${code.toString(16).padStart(4, '0')}`
}

const CONCEAL = 8

/** A code of an SGR sequence. Code 38, 48 or 58 includes the numbers of its colour. */
const SGR_CODE = /(?<![^;])(?:0*[345]8;(?:5;\d+|2;\d+;\d+;\d+)|[^;]*)(?![^;])/g

/** Removes the code that conceals text from an SGR sequence. Returns '' if no code is left. */
function withoutConceal(codes: string) {
  const kept = codes.match(SGR_CODE)!.filter((code) => Number.parseInt(code, 10) !== CONCEAL)
  return kept.length === 0 ? '' : `\x1b[${kept.join(';')}m`
}
