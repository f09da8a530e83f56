/**
 * What a terminal takes for a command: all control characters but tab and line feed, and what reverses the
 * order of the characters that follow.
 */
const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/

const COLOUR_OR_CONTROL = /\x1b\[([\d;:]*)m|[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g

/**
 * Text that others have written, as it can be shown on a terminal: control characters, with which it
 * could move the cursor, hide lines or type commands, become signs that stand for them. Tabs and line
 * feeds stay.
 *
 * @param colours - whether colour codes pass, up to the end of their line; otherwise they are left out
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

/** What begins a sequence: ESC, and of C1 DCS, SOS, CSI, OSC, PM and APC. SO selects other characters. */
const OPENER = /[\x0e\x1b\x90\x98\x9b\x9d-\x9f]/

/** Leaves UTF-8 (ESC % ...). */
const OTHER_CODING = /\x1b[\0-\x1a\x1c-\x1f]*%[ -/]*[0-~]?/g
/** Selects other characters, as for drawing lines: ESC ( ..., SO, ESC n, ESC o. */
const OTHER_CHARACTERS = /\x0e|\x1b[\0-\x1a\x1c-\x1f]*[ -/no]/
/** ASCII as G0, and G0 as what is shown. */
const ASCII = '\x1b(B\x0f'

/**
 * Control sequences (ECMA-48, CSI) with what terminals ignore in them, and sequences that another one
 * cuts off.
 */
const SEQUENCE =
  /(?:\x1b[\0-\x1a\x1c-\x1f\x7f-\x9a\x9c-\x9f]*\[|\x9b)([^\x1b\x9b@-~]*)([@-~]?)|\x1b(?=[^ -~\x1b\x9b]*[\x1b\x9b])/g

/**
 * As `visibleText` with colours, but the text may also control the terminal in other ways. No sequence
 * extends beyond the line.
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

/** The line, at whose end all colours and unfinished sequences end. */
function reset(line: string): string {
  return /\x1b\[0?m$/.test(line) ? line : `${line}\x1b[0m`
}

function signOf(code: number): string {
  if (code === 0x7f) return '␡'
  // the control pictures of Unicode: ␛ for escape
  if (code < 0x20) return String.fromCharCode(0x2400 + code)
  return `\\${code < 0x100 ? 'x' : 'u'}${code.toString(16)}`
}

const CONCEAL = 8

/** The sequence of these codes (SGR) without the one that conceals text; '' if nothing is left of it. */
function withoutConceal(codes: string): string {
  const given = codes.split(';')
  const kept: string[] = []
  for (let i = 0; i < given.length; i++) {
    if ((Number.parseInt(given[i]!, 10) || 0) === CONCEAL) continue
    // The codes after it name the colour.
    const isLong = /^0*[345]8$/.test(given[i]!)
    const length = (isLong ? { '5': 2, '2': 4 }[given[i + 1] ?? ''] : undefined) ?? 0
    const colour = given.slice(i + 1, i + 1 + length)
    // Without all of its numbers, a terminal may take those that follow for codes.
    const isWhole = colour.length === length && colour.every((number) => /^\d*$/.test(number))
    const end = i + (isWhole ? length : 0)
    kept.push(...given.slice(i, end + 1))
    i = end
  }
  return kept.length === 0 ? '' : `\x1b[${kept.join(';')}m`
}
