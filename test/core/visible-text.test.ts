import { formatTable, tsrError, visibleText } from '@tsrun/core'

const ESC = '\u001b'

describe('text of others on a terminal', () => {
  it.each([
    ['a screen that is cleared', `${ESC}[2Jgone`, '␛[2Jgone'],
    ['a title that is set', `${ESC}]0;evil\u0007`, '␛]0;evil␇'],
    ['a line that is written over', 'all is well\rfailed', 'all is well␍failed'],
    ['letters that are taken back', 'ab\b\bcd', 'ab␈␈cd'],
    ['an escape in one character', '\u009b2J', '\\x9b2J'],
    ['a delete', 'a\u007f', 'a␡'],
    ['plain text of any language', 'wörter ✓\tund\nmehr', 'wörter ✓\tund\nmehr'],
  ])('is shown as what it is: %s', (_, text, shown) => {
    expect(visibleText(text)).toBe(shown)
    expect(visibleText(text, true)).toBe(shown)
  })

  it('keeps colours only where they are wanted', () => {
    const text = `${ESC}[1;31mred${ESC}[0m${ESC}[1A`
    expect(visibleText(text, true)).toBe(`${ESC}[1;31mred${ESC}[0m␛[1A`)
    expect(visibleText(text)).toBe('red␛[1A')
  })

  it('is that of tables and of errors, too', () => {
    expect(formatTable([['a', `${ESC}[2Jb`]])).toEqual(['a  ␛[2Jb'])
    const path = `x${ESC}[2J${'y'.repeat(100_000)}`
    const { message } = tsrError('ERR_TSR_SAFETENSORS', { path, problem: 'it is none' })
    expect(message).toContain('x␛[2Jyyy')
    expect(message).toContain('characters more')
    expect(message.length).toBeLessThan(3000)
  })
})
