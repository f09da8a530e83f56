import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { randomBytes } from 'node:crypto'
import { usageError } from '../args/read-setting.ts'
import { version } from '../job/package.ts'
import { LineSplitter } from '../logs/lines.ts'
import type { Interruption } from '../processes/interrupts.ts'
import { Connection, quoted, type Reach, type RemoteEnd } from '../remote/connection.ts'
import { chooseHosts, parseHostfile, type RemoteHost } from '../remote/hostfile.ts'
import { LIFELINE } from '../remote/lifeline.ts'
import type { AddCommand, CommandContext } from './context.ts'

/** What `tsrun hosts` is asked to do. */
interface HostsRequest {
  readonly hostfile: string
  readonly include?: string | undefined
  readonly exclude?: string | undefined
  readonly env?: string | undefined
  readonly ssh: string
  readonly port: string
  /** The flags of the job, the script and its arguments. */
  readonly job: readonly string[]
}

/** `tsrun hosts --hostfile FILE -- [flags] script` */
export function addHosts(context: CommandContext): AddCommand {
  return (parser) =>
    parser.command(
      'hosts',
      'start a job on other hosts with ssh',
      (own) =>
        own
          .usage(
            '$0 hosts --hostfile FILE [options] -- [flags] script [arguments]\n\nStarts tsrun on each host of the file ' +
              'with ssh, in the working directory of this one, and is the console of the job: output with ' +
              'the name of the host, Ctrl-C and other signals, the exit code. A line of the file is ' +
              'NAME [slots=N] [user=NAME] [port=N]; the first host has the store.',
          )
          .option('hostfile', {
            type: 'string',
            demandOption: true,
            requiresArg: true,
            describe: 'the file with the hosts',
          })
          .option('include', { type: 'string', describe: 'only these hosts, separated by commas' })
          .option('exclude', { type: 'string', describe: 'all hosts but these' })
          .option('env', {
            type: 'string',
            describe: 'the variables of this environment that the ranks get, separated by commas',
          })
          .option('ssh', {
            type: 'string',
            default: 'ssh',
            describe: 'the command of ssh, with options',
          })
          .option('port', { type: 'string', default: '29500', describe: 'the port of the store' })
          .version(false),
      async (argv) => {
        const job = (argv['--'] as readonly string[] | undefined) ?? []
        const { hostfile, include, exclude, env, ssh, port } = argv
        context.exitCode = await runOnHosts(
          { hostfile, include, exclude, env, ssh, port, job },
          context,
        )
      },
    )
}

/** @throws ERR_TSR_USAGE */
async function runOnHosts(request: HostsRequest, context: CommandContext): Promise<number> {
  if (request.job.length === 0) {
    throw usageError('No script given: tsrun hosts --hostfile FILE -- [flags] script [arguments]')
  }
  const hosts = chooseHosts(readHosts(request.hostfile, context.cwd), request)
  const [program = 'ssh', ...args] = request.ssh.split(/\s+/)
  const reach: Reach = { ssh: [program, ...args], env: context.env }
  const problems = await Promise.all(hosts.map((host) => check(host, reach, context.cwd)))
  const found = problems.filter((problem) => problem !== undefined)
  if (found.length > 0) throw usageError(found.join('; '))
  return await runJobOn(hosts, request, reach, context)
}

function readHosts(file: string, cwd: string): RemoteHost[] {
  try {
    return parseHostfile(readFileSync(resolve(cwd, file), 'utf8'), file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    throw usageError(`there is no host file ${resolve(cwd, file)}`, error)
  }
}

/** What runs on a host before tsrun: it goes to the directory, where it finds Node and tsrun. */
function prelude(cwd: string): string {
  const path = `PATH="$PATH":${quoted(dirname(process.execPath))}`
  return `cd ${quoted(cwd)} && ${path} && export PATH`
}

/** Why a host cannot take part; undefined if it can. */
async function check(host: RemoteHost, reach: Reach, cwd: string): Promise<string | undefined> {
  let [stdout, stderr] = ['', '']
  const command = `${prelude(cwd)} && npx --no -- tsrun --version </dev/null`
  const connection = new Connection(host, command, reach, (stream, text) => {
    if (stream === 'stdout') stdout += text
    else stderr += text
  })
  const { code } = await connection.ended
  const said = stderr.trim().split('\n').at(-1) ?? ''
  if (code !== 0) return `host ${host.name}: ${said === '' ? `exit code ${code}` : said}`
  const other = stdout.trim()
  return other === version
    ? undefined
    : `host ${host.name} has tsrun ${other}, and this one ${version}`
}

async function runJobOn(
  hosts: readonly RemoteHost[],
  request: HostsRequest,
  reach: Reach,
  { console, env, cwd, interrupts }: CommandContext,
): Promise<number> {
  const token = env['TSRUN_TOKEN'] ?? randomBytes(32).toString('hex')
  const width = Math.max(...hosts.map(({ name }) => name.length))
  const isRaw = /--log[-_]format[= ](json|raw)/.test(request.job.join(' '))
  const connections = hosts.map((host, nodeRank) => {
    const prefix = isRaw ? '' : `${host.name.padEnd(width)} | `
    const splitters = { stdout: new LineSplitter(), stderr: new LineSplitter() }
    const command = commandOf(hosts, nodeRank, request, env, cwd)
    const connection = new Connection(host, command, reach, (stream, text) => {
      const lines = splitters[stream].push(Buffer.from(text))
      console.write(stream, lines.map((line) => `${prefix}${line.text}\n`).join(''))
    })
    // The first line is the token: arguments can be read by other users of the host.
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
    connections.map(async (connection): Promise<RemoteEnd> => {
      const end = await connection.ended
      // Without one host there is no job. The others would wait for it.
      if (end.isLost) for (const other of connections) other.send('SIGTERM')
      return end
    }),
  )
  for (const [i, { isLost }] of ends.entries()) {
    if (isLost) console.write('stderr', `tsrun: the connection to ${hosts[i]!.name} has failed\n`)
  }
  const codes = ends.map(({ code }) => code)
  return codes.find((code) => code !== 0 && code !== 255) ?? Math.max(...codes)
}

/** The command line of one host, for its shell. */
function commandOf(
  hosts: readonly RemoteHost[],
  nodeRank: number,
  request: HostsRequest,
  env: NodeJS.ProcessEnv,
  cwd: string,
): string {
  const names = (request.env ?? '').split(',').filter((name) => name !== '')
  const given = names.filter((name) => env[name] !== undefined)
  const variables = given.map((name) => `${name}=${quoted(env[name]!)}`)
  const first = hosts[0]!.name
  const endpoint = `${first.includes(':') && !first.startsWith('[') ? `[${first}]` : first}:${request.port}`
  const flags = [
    ...['--nnodes', String(hosts.length), '--node-rank', String(nodeRank)],
    ...['--rdzv-endpoint', endpoint, '--nproc', String(hosts[nodeRank]!.slots)],
  ]
  const words = ['exec', 'env', ...variables, `${LIFELINE}=1`, 'npx', '--no', '--', 'tsrun']
  const line = [...words, ...[...flags, ...request.job].map(quoted)].join(' ')
  return `read -r TSRUN_TOKEN && export TSRUN_TOKEN && ${prelude(cwd)} && ${line}`
}
