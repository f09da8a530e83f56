import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { errorTable } from '@tsrun/core'
import type { ErrorDefinition } from '@tsrun/core'

const page = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8')
const documented = new Map(page.split('\n### ').slice(1).map(readEntry))
const table: [string, ErrorDefinition][] = Object.entries(errorTable)

// Out of date? `npm run docs` rewrites the page.
describe('docs/errors.md', () => {
  it('lists exactly the codes of the error table', () => {
    expect([...documented.keys()].sort()).toEqual(table.map(([code]) => code).sort())
  })

  it.each(table)('shows category, message and advice of %s', (code, definition) => {
    const { category, message, advice, consequence } = definition
    const kind = consequence === true ? `${category}, consequence` : category
    expect(documented.get(code)).toEqual([kind, message, advice])
  })
})

describe('the error table', () => {
  it.each(table)('%s has a message and an advice that end and read as sentences', (_, error) => {
    expect(error.message).toMatch(/^\S.*[^.\s]$/)
    expect(error.advice).toMatch(/^[A-Z].*\.$/)
  })
})

it('lists only codes that are thrown', () => {
  const root = fileURLToPath(new URL('../../packages/', import.meta.url))
  const sources = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => /^\w+\/src\/(?!errors\/).*\.ts$/.test(name))
    .map((name) => readFileSync(join(root, name), 'utf8'))
    .join('\n')
  expect(table.map(([code]) => code).filter((code) => !sources.includes(`'${code}'`))).toEqual([])
})

/** Code and plain text of one `### ERR_TSR_...` entry. */
function readEntry(entry: string): [string, string[]] {
  const [code, ...paragraphs] = entry
    .split('\n## ')[0]!
    .trim()
    .split(/\n{2,}/)
  const plain = (text: string): string =>
    text
      .replace(/^> /gm, '')
      .replace(/\\([\\<>*])/g, '$1')
      .replaceAll('\n', ' ')
  return [code!, paragraphs.map(plain)]
}
