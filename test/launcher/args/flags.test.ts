import { readFileSync } from 'node:fs'
import { flagTable, variablesOf } from '../../internals/launcher/args.ts'
import { tsrunHere } from '../support/in-process.ts'

const page = readFileSync(new URL('../../../docs/launcher.md', import.meta.url), 'utf8')

const spelledOf = ({ name, aliases = [] }: (typeof flagTable)[number]): string[] =>
  [name, ...aliases].map((one) => (one.length === 1 ? `-${one}` : `--${one}`))

describe('the flags', () => {
  it('do not change unnoticed, because scripts depend on them', () => {
    const spelled = flagTable.map(({ name, aliases = [], value }) =>
      [name, ...aliases, value ?? 'switch'].join(' '),
    )
    expect(spelled).toEqual([
      'nproc nproc-per-node N|auto|gpu|cpu',
      'nnodes N|MIN:MAX',
      'node-rank K',
      'rdzv-endpoint HOST[:PORT]',
      'rdzv-timeout SECONDS',
      'role NAME',
      'virtual-local-rank switch',
      'numa-binding node|socket|exclusive|core-complex',
      'bind core|numa|none',
      'token-file FILE',
      'tls switch',
      'tls-cert FILE',
      'tls-key FILE',
      'tls-ca FILE',
      'iface NAME|ADDRESS',
      'port-range A-B',
      'host-timeout SECONDS',
      'master-addr HOST',
      'master-port PORT',
      'max-restarts N',
      'grace shutdown-timeout SECONDS',
      'signals-to-handle LIST',
      'job-timeout SECONDS',
      'on-failure COMMAND|URL',
      'chaos FILE',
      'log-dir DIR',
      'log-max-size SIZE',
      'log-format pretty|json|raw',
      'log-prefix TEMPLATE',
      'ranks LIST',
      'local-ranks-filter LIST',
      'redirects r 0|1|2|3|MAP',
      'tee t 0|1|2|3|MAP',
      'duplicate-stdout-filters TEXTS',
      'duplicate-stderr-filters TEXTS',
      'summary switch',
      'event-log FILE',
      'trace DIR',
      'trace-steps A:B',
      'trace-max-size SIZE',
      'dashboard PORT',
      'dashboard-linger SECONDS',
      'metrics [HOST:]PORT',
      'module m switch',
      'no-python switch',
      'stdin K|all|none',
      'node-args ARGS',
      'inspect [HOST:]PORT|auto',
      'inspect-rank K',
      'cpu-prof switch',
      'heap-prof switch',
      'detach switch',
      'dry-run switch',
      'standalone switch',
      'rdzv-backend c10d|static',
      'rdzv-id NAME',
      'rdzv-conf K=V,...',
      'local-addr ADDRESS',
      'monitor-interval SECONDS',
      'start-method spawn',
      'run-path switch',
      'event-log-handler null|console',
      'log-line-prefix-template TEMPLATE',
      'logs-specs default',
    ])
  })

  it('are all documented in docs/launcher.md', () => {
    const code = (text: string): string => `\`${text.replaceAll('|', '\\|')}\``
    const rows = flagTable.map((flag) => {
      const names = spelledOf(flag)
      const spelled = code([names.join(', '), flag.value ?? ''].join(' ').trim())
      const fallback = flag.fallback === undefined ? '' : code(flag.fallback)
      const variables = variablesOf(flag).map(code).join(', ')
      return `| ${spelled} | ${fallback} | ${variables} | ${flag.description.replaceAll('|', '\\|')} |`
    })
    const shown = /<!-- flags -->\n\n.*\n.*\n([\s\S]*?)\n\n<!-- end of flags -->/.exec(page)?.[1]
    const withoutPadding = (text?: string): string | undefined => text?.replaceAll(/ *\| */g, '|')
    expect(withoutPadding(shown)).toEqual(withoutPadding(rows.join('\n')))
  })

  it('are each listed once on the help page, which names their variables', async () => {
    const { stdout } = await tsrunHere(['--help'])
    for (const flag of flagTable) {
      const names = spelledOf(flag).toSorted((a, b) => a.length - b.length)
      const line = new RegExp(`^ {2,6}${names.join(', ')} `, 'gm')
      expect([flag.name, stdout.match(line)?.length]).toEqual([flag.name, 1])
    }
    expect(stdout).not.toContain('--nproc_per_node')
    expect(stdout).toMatch(/TSRUN_<FLAG>[^]*PET_<FLAG>/)
  })
})
