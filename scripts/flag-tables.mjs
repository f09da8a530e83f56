// Writes the tables of flags in docs/launcher.md and docs/torch.md from the flags themselves: npm run docs.
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { format, resolveConfig } from 'prettier'
import { flagTable } from '../packages/launcher/src/args/flags.ts'
import { variablesOf } from '../packages/launcher/src/args/settings.ts'

const pages = {
  launcher: {
    titles: ['flag', 'default', 'environment', 'meaning'],
    rows: flagTable.map((flag) => [
      code([spelled(flag).join(', '), flag.value ?? ''].join(' ').trim()),
      flag.fallback === undefined ? '' : code(flag.fallback),
      variablesOf(flag).map(code).join(', '),
      flag.description,
    ]),
  },
  torch: {
    titles: ['torchrun', 'here', 'differences'],
    rows: flagTable
      .filter(({ torchrun }) => torchrun !== undefined)
      .map((flag) => [
        code(`--${flag.torchrun}`),
        spelled(flag).map(code).join(', '),
        flag.differs ?? '',
      ]),
  },
}

for (const [name, { titles, rows }] of Object.entries(pages)) {
  const page = fileURLToPath(new URL(`../docs/${name}.md`, import.meta.url))
  const lines = [titles, titles.map(() => '---'), ...rows].map(
    (row) => `| ${row.map(cell).join(' | ')} |`,
  )
  const text = readFileSync(page, 'utf8').replace(
    /(<!-- flags -->\n\n)[^]*?(\n\n<!-- end of flags -->)/,
    (_, start, end) => start + lines.join('\n') + end,
  )
  const options = await resolveConfig(page)
  writeFileSync(page, await format(text, { ...options, parser: 'markdown' }))
}

function spelled({ name, aliases = [] }) {
  return [name, ...aliases].map((one) => (one.length === 1 ? `-${one}` : `--${one}`))
}

function code(text) {
  return `\`${text}\``
}

function cell(text) {
  return text.replaceAll('|', '\\|')
}
