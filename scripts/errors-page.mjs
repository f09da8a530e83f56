// Writes docs/errors.md from the error table of packages/core: npm run docs.
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { format, resolveConfig } from 'prettier'

const page = fileURLToPath(new URL('../docs/errors.md', import.meta.url))
const sections = ['core', 'native', 'store', 'distributed', 'training', 'launcher']

const introduction = `# Errors

Every error that tsrun throws has a \`code\` of this page, a message that says what happened and
where, and an advice. Compare codes; \`instanceof\` fails across threads, processes and realms:

\`\`\`ts
import { isTsrError, tsrError } from '@tsrun/core'

try {
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'rank', value: -1, expected: 'at least 0' })
} catch (error) {
  if (!isTsrError(error)) throw error
  console.log(error.code, error.category, error.facts)
}
\`\`\`

The category says who has to act: the **user** (a wrong call or flag), the **infrastructure** (network,
memory, a dead process), or us (**internal**: a bug, please report it). A **consequence** only follows
from another rank's failure; the failure report names the first error that is none.

This page is made by \`npm run docs\`.
`

const parts = [introduction]
for (const section of sections) {
  const { [`${section}Errors`]: table } = await import(`../packages/core/src/errors/${section}.ts`)
  const entries = Object.entries(table)
  if (entries.length === 0) continue
  parts.push(`## ${section}`, ...entries.map(([code, definition]) => entry(code, definition)))
}

const options = await resolveConfig(page)
writeFileSync(page, await format(parts.join('\n\n'), { ...options, parser: 'markdown' }))

function entry(code, { category, message, advice, consequence }) {
  return [
    `### ${code}`,
    consequence ? `${category}, consequence` : category,
    `> ${escaped(message)}`,
    escaped(advice),
  ].join('\n\n')
}

/** The text as Markdown shows it unchanged. */
function escaped(text) {
  return text.replace(/[\\<>*]/g, '\\$&')
}
