import { fileURLToPath } from 'node:url'
import { readInteger, splitList, UsageError } from '../command-line.mjs'
import { printRows, markdownTable } from '../figures.mjs'
import { RunError, runProgram, runToEnd } from '../programs.mjs'
import { takeTurns } from '../turns.mjs'
import { compare } from './summary.mjs'

const main = fileURLToPath(new URL('../main.mjs', import.meta.url))

/** @type {import('../command-line.mjs').Command} */
export const nodes = {
  summary: 'another command under several versions of Node, in one table',
  options: {
    command: { value: '<text>', description: 'of npm run bench --, with its options, in quotes' },
    figure: {
      value: '<column>',
      description: 'what is compared, as --json of the command names it',
    },
    versions: {
      value: '<list>',
      default: '20,22,24,26',
      description: 'versions, which npm fetches into its cache, or paths of node',
    },
    runs: { value: '<n>', default: '3', description: 'rounds; the versions take turns in each' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const command = (values['command'] ?? '').split(' ').filter((word) => word !== '')
    const figure = values['figure']
    const versions = splitList(values['versions'])
    const runs = readInteger('runs', values['runs'], 1, 100)
    if (command.length === 0) throw new UsageError('--command is missing')
    if (figure === undefined) throw new UsageError('--figure is missing')
    if (versions.length === 0) throw new UsageError('--versions is empty')
    const systems = []
    for (const version of versions) systems.push(await findNode(version))
    const { rounds, failures } = await takeTurns(systems, runs, async ({ name, path }) => {
      const line = { command: path, args: [main, ...command, '--json'] }
      const text = await runProgram(name, line)
      return text.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line)] : []))
    })
    const rows = compare(rounds, figure)
    if (rows.length === 0) throw new RunError(`no row of the command has the column ${figure}`)
    printRows(rows, values.json !== undefined, formatRows)
    return failures === 0 ? 0 : 1
  },
}

/**
 * @param {string} version - or the path of a program
 * @returns {Promise<{ name: string, path: string }>} `name`: the version in full
 * @throws ERR_BENCH_RUN where there is none
 */
async function findNode(version) {
  const print = 'console.log(process.version, process.execPath)'
  const [command, ...args] = version.includes('/')
    ? [version]
    : ['npm', 'exec', '--yes', `--package=node@${version}`, '--', 'node']
  const { ok, stdout, output, reason } = await runToEnd(String(command), [...args, '-e', print])
  if (!ok) throw new RunError(`no Node ${version} (${reason})\n${output}`)
  const [name = '', ...path] = stdout.trim().split('\n').at(-1)?.split(' ') ?? []
  return { name, path: path.join(' ') }
}

/** @param {readonly import('./summary.mjs').Row[]} rows */
function formatRows(rows) {
  const versions = Object.keys(rows[0]?.figures ?? {})
  return markdownTable(
    ['case', ...versions, ...versions.map((version) => `${version} x best`)],
    rows.map(({ name, figures, ratios }) => [
      name,
      ...versions.map((version) => figures[version] ?? ''),
      ...versions.map((version) => ratios[version] ?? ''),
    ]),
  )
}
