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

/**
 * Matches the start of a control sequence: ESC, SO, or the C1 characters DCS, SOS, CSI, OSC, PM and
 * APC.
 */
const OPENER = /[\x0e\x1b\x90\x98\x9b\x9d-\x9f]/

/** Matches sequences that switch away from UTF-8 (ESC % ...). */
const OTHER_CODING = /\x1b[\0-\x1a\x1c-\x1f]*%[ -/]*[0-~]?/g
/**
 * Matches sequences that select another character set, such as line drawing: ESC ( ..., SO, ESC n,
 * ESC o.
 */
const OTHER_CHARACTERS = /\x0e|\x1b[\0-\x1a\x1c-\x1f]*[ -/no]/
/** The sequence that loads ASCII into G0 and selects G0. */
const ASCII = '\x1b(B\x0f'

/**
 * Matches CSI sequences (ECMA-48), with the characters inside them that terminals ignore, and sequences
 * that a new sequence interrupts.
 */
const SEQUENCE =
  /(?:\x1b[\0-\x1a\x1c-\x1f\x7f-\x9a\x9c-\x9f]*\[|\x9b)([^\x1b\x9b@-~]*)([@-~]?)|\x1b(?=[^ -~\x1b\x9b]*[\x1b\x9b])/g

/**
 * Keeps the terminal control sequences of a line, but ends every colour and every unfinished sequence
 * at the end of the line. Unlike `visibleText`, it also keeps sequences other than colours.
 */
export function endingColours(line: string): string {
  if (!OPENER.test(line)) return line
  const shown = line.replace(SEQUENCE, (_, inside?: string, final?: string) => {
    if (inside === undefined || !final) return ''
    const codes = inside.replaceAll(/[^ -?]/g, '')
    return final === 'm' && /^[\d;:]*$/.test(codes)
      ? withoutConceal(codes)
      : `\x1b[${codes}${final}`
  })
  const coded = shown.replaceAll(OTHER_CODING, '')
  return reset(OTHER_CHARACTERS.test(coded) ? coded + ASCII : coded)
}

function reset(line: string) {
  return /\x1b\[0?m$/.test(line) ? line : `${line}\x1b[0m`
}

function signOf(code: number) {
  if (code === 0x7f) return '␡'
  // Replace the character by its picture in Unicode, for example ␛ for escape, or by its escape in JSON.
  if (code < 0x20) return String.fromCharCode(0x2400 + code)
  return `\\u${code.toString(16).padStart(4, '0')}`
}

const CONCEAL = 8

/**
 * Returns the SGR sequence of these codes, without the code that conceals text. Returns '' if no
 * code is left.
 */
function withoutConceal(codes: string) {
  const given = codes.split(';')
  const kept: string[] = []
  for (let i = 0; i < given.length; i++) {
    if ((Number.parseInt(given[i]!, 10) || 0) === CONCEAL) continue
    // After code 38, 48 or 58, the next codes are the numbers of a colour.
    const isLong = /^0*[345]8$/.test(given[i]!)
    const length = (isLong ? { '5': 2, '2': 4 }[given[i + 1] ?? ''] : undefined) ?? 0
    const colour = given.slice(i + 1, i + 1 + length)
    // Of an incomplete colour sequence, a terminal may read the following codes as colour numbers.
    const isWhole = colour.length === length && colour.every((number) => /^\d*$/.test(number))
    const end = i + (isWhole ? length : 0)
    kept.push(...given.slice(i, end + 1))
    i = end
  }
  return kept.length === 0 ? '' : `\x1b[${kept.join(';')}m`
}
