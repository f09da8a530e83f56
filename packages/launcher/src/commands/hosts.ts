import { randomBytes } from 'node:crypto'
import { textWidth } from '@tsrun/core'
import type { Flags, ValuesOf } from '../args/flag.ts'
import { quoted, usageError } from '../args/readers.ts'
import { TRY_AGAIN } from '../job/failure/exit-codes.ts'
import { TERMINATED } from '../job/process/escalation.ts'
import { lineSplitter, type Line, type StreamName } from '../logs/lines.ts'
import { streamNames } from '../logs/log-files.ts'
import type { Interruption } from '../protocol/nodes.ts'
import {
  chooseHosts,
  commandIn,
  hostFlags,
  openConnection,
  PARENT_PIPE,
  type Reach,
  readHosts,
  readSsh,
  type RemoteHost,
  SSH_FAILED,
  whyNotOn,
} from '../remote/hosts.ts'
import { declareCommand, type CommandContext } from './context.ts'

const flags = {
  hostfile: { isNeeded: true, description: 'the file with the hosts' },
  ...hostFlags(),
  env: {
    description: 'the variables of this environment that the ranks get, separated by commas',
  },
} as const satisfies Flags

interface HostsRequest extends ValuesOf<typeof flags> {
  /** The flags of the job, the script and its arguments. */
  readonly job: readonly string[]
}

export const command = declareCommand({
  usage:
    '$0 hosts --hostfile FILE [options] -- [flags] script [arguments]\n\nStarts tsrun on each host of the file ' +
    'with ssh, in the working directory of this one, and is the console of the job: output with ' +
    'the name of the host, Ctrl-C and other signals, the exit code. A line of the file is ' +
    'NAME [slots=N] [user=NAME] [port=N]; the first host has the store.',
  flags,
  run: async (values, context, job) => {
    context.exitCode = await runOnHosts({ ...values, job }, context)
  },
})

async function runOnHosts(request: HostsRequest, context: CommandContext): Promise<number> {
  if (request.job.length === 0) {
    throw usageError('No script given: tsrun hosts --hostfile FILE -- [flags] script [arguments]')
  }
  const wrong = variablesIn(request).find((name) => !/^[A-Za-z_]\w*$/.test(name))
  if (wrong !== undefined) throw usageError(`--env: ${wrong} is no name of a variable`)
  const hosts = chooseHosts(readHosts(request.hostfile, context.cwd), request)
  const reach: Reach = { ssh: readSsh(request.ssh), env: context.env, cwd: context.cwd }
  const obstacles = await Promise.all(hosts.map((host) => whyNotOn(host, reach)))
  const found = obstacles.filter((obstacle) => obstacle !== undefined)
  if (found.length === 0) return await runJobOn(hosts, request, reach, context)
  const text = obstacles
    .flatMap((obstacle, i) => (obstacle ? [`host ${hosts[i]!.name}: ${obstacle.problem}`] : []))
    .join('; ')
  if (!found.every(({ isTemporary }) => isTemporary)) throw usageError(text)
  context.console.print('stderr', `tsrun: ${text}\n`)
  return TRY_AGAIN
}

function variablesIn({ env = '' }: HostsRequest): string[] {
  return env.split(',').filter((name) => name !== '')
}

async function runJobOn(
  hosts: readonly RemoteHost[],
  request: HostsRequest,
  reach: Reach,
  { console, env, interrupts }: CommandContext,
): Promise<number> {
  const given = env['TSRUN_TOKEN'] ?? ''
  const token = given === '' ? randomBytes(32).toString('hex') : given
  const width = Math.max(...hosts.map(({ name }) => name.length))
  const isRaw = /--log[-_]format[= ](json|raw)/.test(request.job.join(' '))
  const connections = hosts.map((host, nodeRank) => {
    const prefix = isRaw ? '' : `${host.name.padEnd(width)} | `
    const columns = textWidth(env) - prefix.length
    const splitters = { stdout: lineSplitter(), stderr: lineSplitter() }
    const command = commandOf(hosts, nodeRank, request, reach, columns)
    const show = (stream: StreamName, lines: readonly Line[]): void => {
      const text = lines.map((line) => `${prefix}${line.text}\n`).join('')
      // Output that is not from tsrun, such as a greeting of ssh, may contain control sequences.
      if (isRaw) console.write(stream, text)
      else console.print(stream, text)
    }
    const connection = openConnection(host, command, reach, (stream, text) => {
      show(stream, splitters[stream].push(Buffer.from(text)))
    })
    void connection.ended.then(() => {
      for (const stream of streamNames) show(stream, splitters[stream].flush())
    })
    // Send the token as input, because other users of the host can read process arguments.
    connection.send(token)
    return connection
  })
  const tell = (signal: AbortSignal): void => {
    const { reason } = signal.reason as Interruption
    const name = reason?.startsWith('SIG') === true ? reason : 'SIGINT'
    for (const connection of connections) connection.send(name)
  }
  for (const signal of [interrupts.stop, interrupts.kill]) {
    signal.addEventListener('abort', () => {
      tell(signal)
    })
  }
  const ends = await Promise.all(
    connections.map(async ({ ended }) => {
      const end = await ended
      // A job needs all of its hosts, so stop the other hosts when one is lost.
      if (end.isLost) for (const other of connections) other.send('SIGTERM')
      return end
    }),
  )
  for (const [i, { isLost }] of ends.entries()) {
    if (isLost) console.write('stderr', `tsrun: the connection to ${hosts[i]!.name} has failed\n`)
  }
  const codes = ends.map(({ code }) => code)
  if (!ends.some(({ isLost }) => isLost)) return codes.find((code) => code !== 0) ?? 0
  // Ignore the exit codes of the hosts that the SIGTERM above stopped.
  return codes.find((code) => ![0, SSH_FAILED, TERMINATED].includes(code)) ?? TRY_AGAIN
}

/** @param columns - the width of the output of this host in characters */
function commandOf(
  hosts: readonly RemoteHost[],
  nodeRank: number,
  request: HostsRequest,
  { env, cwd }: Reach,
  columns: number,
): string {
  const given = variablesIn(request).filter((name) => env[name] !== undefined)
  const variables = given.map((name) => `${name}=${quoted(env[name]!)}`)
  if (!given.includes('COLUMNS')) variables.push(`COLUMNS=${Math.max(1, columns)}`)
  const first = hosts[0]!.name
  const endpoint = `${first.includes(':') ? `[${first}]` : first}:${request.port}`
  const flags = [
    '--nnodes',
    String(hosts.length),
    '--node-rank',
    String(nodeRank),
    '--rdzv-endpoint',
    endpoint,
    '--nproc',
    String(hosts[nodeRank]!.slots),
  ]
  const words = ['exec', 'env', ...variables, `${PARENT_PIPE}=1`, 'npx', '--no', '--', 'tsrun']
  const line = [...words, ...[...flags, ...request.job].map(quoted)].join(' ')
  return `read -r TSRUN_TOKEN && export TSRUN_TOKEN && ${commandIn(cwd, line)}`
}
