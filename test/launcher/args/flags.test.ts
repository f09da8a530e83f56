import { readFileSync } from 'node:fs'
import { flagTable } from '../../../packages/launcher/src/args/flags.ts'
import { variablesOf } from '../../../packages/launcher/src/args/settings.ts'
import { tsrunHere } from '../support/in-process.ts'

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

  it('are all on the help page, once, with the variables that set them', async () => {
    const { stdout } = await tsrunHere(['--help'])
    for (const { name, aliases = [] } of flagTable) {
      const names = [name, ...aliases].map((one) => `--${one}`).join(', ')
      expect(stdout.split(`${names} `)).toHaveLength(2)
    }
    expect(stdout).not.toContain('--nproc_per_node')
    const shared = flagTable.flatMap(variablesOf).filter((name) => name.startsWith('PET_'))
    expect(stdout.match(/\bPET_\w+/g)).toEqual(shared)
  })
})
