/* eslint-disable prose/phrases -- these are what is tested */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { ESLint } from 'eslint'
import { phrasesIn } from '../../scripts/lint/prose.mjs'

/** What the rule of phrases says of a source. */
async function complaintsAbout(source: string): Promise<string[]> {
  const [result] = await new ESLint().lintText(source, { filePath: 'scripts/any.mjs' })
  return result!.messages
    .filter(({ ruleId }) => ruleId === 'prose/phrases')
    .map(({ message }) => message)
}

describe('the lint rule for phrases that must be read twice', () => {
  it.each([
    ['a comment', '// Whoever reads this may send the signal.'],
    ['a doc comment', '/** The job goes on\n * without it. */'],
    ['a message', "console.log('a stranger gives way to others')"],
    ['a template', 'console.log(`rank ${1} makes the world anew`)'],
  ])('refuses such a phrase in %s', async (_, source) => {
    expect(await complaintsAbout(source)).not.toEqual([])
  })

  it('accepts plain words, and names of fewer than four words', async () => {
    const source = `// A peer reads this.\nconsole.log('go on', 'The job continues without it.')`
    expect(await complaintsAbout(source)).toEqual([])
  })
})

it('the pages of the documentation have no phrases that must be read twice', () => {
  const pages = execFileSync('git', ['ls-files', '*.md'], { encoding: 'utf8' }).trim().split('\n')
  const current = pages.filter((page) => !/^(CHANGELOG\.md|docs\/history\/)/.test(page))
  const found = current.flatMap((page) => {
    const text = readFileSync(page, 'utf8').replace(/^(```|~~~)[^]*?^\1|^ {4}.*$|`[^`]*`/gm, '')
    return phrasesIn(text).map((phrase) => ({ page, ...phrase }))
  })
  expect(found).toEqual([])
})
