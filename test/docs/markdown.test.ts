import { blocksOf, headingsOf } from './markdown.ts'

it('finds blocks with their language, place and comments', () => {
  const page = [
    'Text',
    '```sh',
    'npx tsrun --version',
    '```',
    '',
    '<!-- not executed: installs packages -->',
    '<!-- ranks: 4 -->',
    '',
    '```ts',
    'await 0',
    '```',
  ].join('\n')
  expect(blocksOf('page.md', page)).toEqual([
    {
      ...{ where: 'page.md:2', language: 'sh', text: 'npx tsrun --version\n' },
      ...{ notExecuted: undefined, ranks: 2 },
    },
    {
      ...{ where: 'page.md:6', language: 'ts', text: 'await 0\n' },
      ...{ notExecuted: 'installs packages', ranks: 4 },
    },
  ])
})

it('finds the anchors of headings, and ignores code', () => {
  const page = ['# `fit` of a tf.layers model', '```sh', '# no heading', '```', '## Who, and when?']
  expect(headingsOf(page.join('\n'))).toEqual(['fit-of-a-tflayers-model', 'who-and-when'])
})
