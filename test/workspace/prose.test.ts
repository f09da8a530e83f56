/* eslint-disable prose/phrases -- these are what is tested */
import { ESLint } from 'eslint'

/** What the rule of phrases says of a source. */
async function complaintsAbout(source: string): Promise<string[]> {
  const [result] = await new ESLint().lintText(source, { filePath: 'scripts/any.mjs' })
  return result!.messages
    .filter(({ ruleId }) => ruleId === 'prose/phrases')
    .map(({ message }) => message)
}

describe('the linter, of phrases that must be read twice,', () => {
  it.each([
    ['a comment', '// Whoever reads this may send the signal.'],
    ['a doc comment', '/** The job goes on\n * without it. */'],
    ['a message', "console.log('a stranger gives way to others')"],
    ['a template', 'console.log(`rank ${1} makes the world anew`)'],
  ])('refuses those in %s', async (_, source) => {
    expect(await complaintsAbout(source)).not.toEqual([])
  })

  it('accepts plain words, and names of fewer than four words', async () => {
    const source = `// A peer reads this.\nconsole.log('go on', 'The job continues without it.')`
    expect(await complaintsAbout(source)).toEqual([])
  })
})
