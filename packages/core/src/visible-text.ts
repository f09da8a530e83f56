/** What a terminal takes for a command: all control characters but tab and line feed. */

const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f]/

const COLOUR_OR_CONTROL = /\x1b\[([\d;:]*)m|[\0-\x08\x0b-\x1f\x7f-\x9f]/g

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
    const style = new Style()
    const shown = line.replace(COLOUR_OR_CONTROL, (found, codes?: string) => {
      if (codes !== undefined) return colours ? style.apply(codes) : ''
      return signOf(found.charCodeAt(0))
    })
    return style.isOpen ? `${shown}\x1b[0m` : shown
  })
  return lines.join('\n')
}

/** As `visibleText` with colours, but the text may also control the terminal in other ways. */
export function endingColours(line: string): string {
  const style = new Style()
  const shown = line.replaceAll(/\x1b\[([\d;:]*)m/g, (_, codes: string) => style.apply(codes))
  return style.isOpen ? `${shown}\x1b[0m` : shown
}

function signOf(code: number): string {
  if (code === 0x7f) return '␡'
  // the control pictures of Unicode: ␛ for escape
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\\x${code.toString(16)}`
}

const CONCEAL = 8

/** What the codes of a line have changed so far (ECMA-48, SGR). */
class Style {
  /** By the code that ends it. */
  readonly #open = new Set<number>()

  get isOpen(): boolean {
    return this.#open.size > 0
  }

  /** @returns the sequence without the code that conceals text; '' if nothing is left of it */
  apply(codes: string): string {
    const given = codes.split(';')
    const kept: string[] = []
    for (let i = 0; i < given.length; i++) {
      const code = Number.parseInt(given[i]!, 10) || 0
      if (code === CONCEAL) continue
      // The codes after it name the colour.
      const isLong = /^0*[345]8$/.test(given[i]!)
      const length = (isLong ? { '5': 2, '2': 4 }[given[i + 1] ?? ''] : undefined) ?? 0
      const colour = given.slice(i + 1, i + 1 + length)
      // Without all of its numbers, a terminal may take those that follow for codes.
      const isWhole = colour.length === length && colour.every((number) => /^\d*$/.test(number))
      const end = i + (isWhole ? length : 0)
      kept.push(...given.slice(i, end + 1))
      i = end
      if (code === 0) this.#open.clear()
      else if (isEnd(code)) this.#open.delete(code)
      else this.#open.add(endOf(code))
    }
    return kept.length === 0 ? '' : `\x1b[${kept.join(';')}m`
  }
}

function isEnd(code: number): boolean {
  return (code >= 22 && code <= 29) || [39, 49, 50, 54, 55, 59, 65, 75].includes(code)
}

/** The code that ends what this one begins. */
function endOf(code: number): number {
  if (code === 1 || code === 2) return 22
  if (code >= 3 && code <= 9) return code === 6 ? 25 : code + 20
  if (code === 21) return 24
  if ((code >= 30 && code <= 38) || (code >= 90 && code <= 97)) return 39
  if ((code >= 40 && code <= 48) || (code >= 100 && code <= 107)) return 49
  return code === 58 ? 59 : 0
}
