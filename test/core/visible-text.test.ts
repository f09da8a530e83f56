import { formatTable, tsrError, visibleText } from '@tsrun/core'

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
  })

  it('is made visible in tables and errors, too', () => {
    expect(formatTable([['a', `${ESC}[2Jb`]])).toEqual(['a  ␛[2Jb'])
    const path = `x${ESC}[2J${'y'.repeat(100_000)}`
    const { message } = tsrError('ERR_TSR_SAFETENSORS', { path, problem: 'it is none' })
    expect(message).toContain('x␛[2Jyyy')
    expect(message).toContain('characters more')
    expect(message.length).toBeLessThan(3000)
  })
})
