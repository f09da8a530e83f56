import { endingColours, formatTable, tsrError, visibleText } from '@tsrun/core'

const ESC = '\u001b'

describe('foreign text on a terminal', () => {
  it.each([
    ['a screen that is cleared', `${ESC}[2Jgone`, '␛[2Jgone'],
    ['a title that is set', `${ESC}]0;evil\u0007`, '␛]0;evil␇'],
    ['a line that is written over', 'all is well\rfailed', 'all is well␍failed'],
    ['letters that are taken back', 'ab\b\bcd', 'ab␈␈cd'],
    ['an escape in one character', '\u009b2J', '\\u009b2J'],
    ['an order of letters that is reversed', 'a\u202eb\u2066c', 'a\\u202eb\\u2066c'],
    ['a delete', 'a\u007f', 'a␡'],
    ['plain text of any language', 'wörter ✓\tund\nmehr', 'wörter ✓\tund\nmehr'],
  ])('is shown with visible control characters: %s', (_, text, shown) => {
    expect(visibleText(text)).toBe(shown)
    expect(visibleText(text, true)).toBe(shown)
  })

  it('keeps colours only if they are wanted', () => {
    const text = `${ESC}[1;31mred${ESC}[0m${ESC}[1A`
    expect(visibleText(text, true)).toBe(`${ESC}[1;31mred${ESC}[0m␛[1A${ESC}[0m`)
    expect(visibleText(text)).toBe('red␛[1A')
  })

  it.each([
    [`${ESC}[31mred`, `${ESC}[31mred${ESC}[0m`],
    [`${ESC}[1;31mred${ESC}[39m`, `${ESC}[1;31mred${ESC}[39m${ESC}[0m`],
    [`${ESC}[1;31mred${ESC}[39;22m`, `${ESC}[1;31mred${ESC}[39;22m${ESC}[0m`],
    [`${ESC}[31mone\ntwo`, `${ESC}[31mone${ESC}[0m\ntwo`],
    [`${ESC}[38;5;8mgrey${ESC}[m`, `${ESC}[38;5;8mgrey${ESC}[m`],
    [`${ESC}[48;2;8;8;8mdark`, `${ESC}[48;2;8;8;8mdark${ESC}[0m`],
    [`${ESC}[7mswapped${ESC}[27m`, `${ESC}[7mswapped${ESC}[27m${ESC}[0m`],
  ])('ends its colours at the end of the line: %j', (text, shown) => {
    expect(visibleText(text, true)).toBe(shown)
    expect(endingColours(text.split('\n')[0]!)).toBe(shown.split('\n')[0])
  })

  it.each([
    [`${ESC}[8mhidden`, 'hidden'],
    [`${ESC}[08mhidden`, 'hidden'],
    [`${ESC}[0;8mhidden`, `${ESC}[0mhidden${ESC}[0m`],
    [`${ESC}[0;8;0mshown`, `${ESC}[0;0mshown${ESC}[0m`],
    [`${ESC}[8;31mred`, `${ESC}[31mred${ESC}[0m`],
    [`${ESC}[38;5;8;8mgrey`, `${ESC}[38;5;8mgrey${ESC}[0m`],
  ])('is never concealed by escape sequences: %j', (text, shown) => {
    expect(visibleText(text, true)).toBe(shown)
    expect(endingColours(text)).toBe(shown.endsWith(`${ESC}[0m`) ? shown : `${shown}${ESC}[0m`)
  })

  it.each([
    ['NUL within it', `${ESC}[\x008mhidden`, 'hidden'],
    ['DEL within it', `${ESC}[1\u007f;8mhidden`, `${ESC}[1mhidden`],
    ['a bell before its bracket', `${ESC}\u0007[8mhidden`, 'hidden'],
    ['a letter beyond ASCII within it', `${ESC}[é8mhidden`, 'hidden'],
    ['the one character that begins it', '\u009b8mhidden', 'hidden'],
    ['another one within it', `${ESC}[${ESC}[8m8mhidden`, '8mhidden'],
    ['another one before its bracket', `${ESC}${ESC}[8m[8mhidden`, '[8mhidden'],
    ['another one in one character within it', '\u009b\u009b8m8mhidden', '8mhidden'],
    ['its end in the next line', `shown${ESC}[`, 'shown'],
    ['its end in the next line, in one character', 'shown\u009b1;', 'shown'],
    ['a title that does not end', `${ESC}]0;hidden`, `${ESC}]0;hidden`],
    ['a title in one character', '\u009d0;hidden', '\u009d0;hidden'],
    ['a line that is erased', `${ESC}[2\0Kshown`, `${ESC}[2Kshown`],
  ])('ends an escape sequence at the end of the line: %s', (_, text, shown) => {
    expect(endingColours(text)).toBe(`${shown}${ESC}[0m`)
  })

  it.each([
    ['characters for drawing lines', `${ESC}(0qqq`],
    ['other characters, by shift out', '\u000eqqq'],
    ['other characters, by locking shift', `${ESC}*0${ESC}nqqq`],
    ['a sequence that is interrupted', `${ESC}\0(0qqq`],
  ])('is followed by a reset at the end of the line after %s', (_, text) => {
    const shown = endingColours(text)
    expect(shown.startsWith(text)).toBe(true)
    expect(shown.slice(text.length)).toBe(`${ESC}(B\u000f${ESC}[0m`)
  })

  it('cannot switch the terminal from UTF-8 to another encoding', () => {
    for (const text of [`a${ESC}%@b`, `a${ESC}%/Gb`, `a${ESC}\0%@b`]) {
      expect(endingColours(text)).toBe(`ab${ESC}[0m`)
    }
  })

  it('is processed within two seconds even with 100,000 unterminated sequences', () => {
    for (const part of [ESC, `${ESC}[`, `${ESC}\0`, '\u009b', '\u009b1'])
      expect(endingColours(part.repeat(100_000))).toMatch(/\[0m$/)
  }, 2000)

  it('is made visible in tables and errors, too', () => {
    expect(formatTable([['a', `${ESC}[2Jb`]])).toEqual(['a  ␛[2Jb'])
    const path = `x${ESC}[2J${'y'.repeat(100_000)}`
    const { message } = tsrError('ERR_TSR_SAFETENSORS', { path, problem: 'it is none' })
    expect(message).toContain('x␛[2Jyyy')
    expect(message).toContain('characters more')
    expect(message.length).toBeLessThan(3000)
  })
})
