import { readFileSync } from 'node:fs'
import { helpText } from '../../../packages/launcher/src/args/command-line.ts'
import { flagTable } from '../../../packages/launcher/src/args/flags.ts'
import { variablesOf } from '../../../packages/launcher/src/args/settings.ts'

const page = readFileSync(new URL('../../../docs/launcher.md', import.meta.url), 'utf8')

describe('the flags', () => {
  it('are these; a change is a change for everybody who has a script that calls tsrun', () => {
    const spelled = flagTable.map(({ name, aliases = [], value }) =>
      [name, ...aliases, value ?? 'switch'].join(' '),
    )
    expect(spelled).toEqual([
      'nproc nproc-per-node N|auto',
      'nnodes N',
      'node-rank K',
      'rdzv-endpoint HOST[:PORT]',
      'rdzv-timeout SECONDS',
      'token-file FILE',
      'iface NAME|ADDRESS',
      'port-range A-B',
      'host-timeout SECONDS',
      'master-addr HOST',
      'master-port PORT',
      'max-restarts N',
      'grace shutdown-timeout SECONDS',
      'log-dir DIR',
      'log-format pretty|json|raw',
      'ranks LIST',
      'summary switch',
      'dry-run switch',
    ])
  })

  it('are all in docs/launcher.md', () => {
    const code = (text: string): string => `\`${text.replaceAll('|', '\\|')}\``
    const rows = flagTable.map((flag) => {
      const names = [flag.name, ...(flag.aliases ?? [])].map((name) => `--${name}`)
      const spelled = code([names.join(', '), flag.value ?? ''].join(' ').trim())
      const fallback = flag.fallback === undefined ? '' : code(flag.fallback)
      const variables = variablesOf(flag).map(code).join(', ')
      return `| ${spelled} | ${fallback} | ${variables} | ${flag.description.replaceAll('|', '\\|')} |`
    })
    const shown = /<!-- flags -->\n\n.*\n.*\n([\s\S]*?)\n\n<!-- end of flags -->/.exec(page)?.[1]
    const withoutPadding = (text?: string): string | undefined => text?.replaceAll(/ *\| */g, '|')
    expect(withoutPadding(shown)).toEqual(withoutPadding(rows.join('\n')))
  })

  it('are all on the help page', async () => {
    const help = await helpText()
    for (const { name, aliases = [] } of flagTable) {
      for (const flag of [name, ...aliases]) expect(help).toContain(`--${flag}`)
    }
  })
})
