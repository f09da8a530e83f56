import { HIGHEST_PORT, integerFrom, portRange as ports, readFlag } from '../args/readers.ts'
import { checks } from '../doctor/checks.ts'
import type { Finding } from '../doctor/facts.ts'
import { gatherFacts } from '../doctor/gather.ts'
import { answerQuestions } from '../doctor/hosts/agent.ts'
import { canRun, remarksOf, surveyJson, surveyText } from '../doctor/hosts/report.ts'
import { surveyHosts } from '../doctor/hosts/survey.ts'
import { version } from '../package.ts'
import type { Interruption } from '../protocol/nodes.ts'
import { readSsh } from '../remote/connection.ts'
import { chooseHosts, readHosts } from '../remote/hostfile.ts'
import type { AddCommand, CommandContext } from './context.ts'

/** `tsrun doctor` */
export function addDoctor(context: CommandContext): AddCommand {
  return (parser) =>
    parser.command(
      'doctor',
      'check what this host has, and say what to do',
      (own) =>
        own
          .usage(
            '$0 doctor [--json]\n$0 doctor --hosts FILE [options]\n\nChecks this host: Node, koffi, shared memory, ' +
              'limits, cores, tensor backends and their ' +
              'devices, GPUs, MPI. Each line is OK or says what to do. Each backend that is ' +
              'installed trains one step in a process of its own. The exit code is 0 when the default ' +
              'backend (wasm) can train, and 1 otherwise.\n\nWith --hosts it checks the hosts of a file, as tsrun hosts ' +
              'has it, and the network between each two of them, through ssh: the addresses of the ranks, whether they ' +
              'are reached, round trips, bandwidth, clocks, versions, limits. The exit code is 0 when a job can run on ' +
              'all of them.',
          )
          .option('json', { type: 'boolean', describe: 'print the report as JSON' })
          .option('hosts', {
            type: 'string',
            requiresArg: true,
            describe: 'the file with the hosts',
          })
          .option('include', { type: 'string', describe: 'only these hosts, separated by commas' })
          .option('exclude', { type: 'string', describe: 'all hosts but these' })
          .option('ssh', { type: 'string', describe: 'the command of ssh, with options' })
          .option('port', { type: 'string', describe: 'the port of the store' })
          .option('port-range', { type: 'string', describe: 'the ports of the ranks' })
          .option('iface', { type: 'string', describe: 'the interface or address of the ranks' })
          .option('answer', { type: 'boolean', hidden: true })
          .implies({
            ...{ include: 'hosts', exclude: 'hosts', ssh: 'hosts', port: 'hosts' },
            ...{ 'port-range': 'hosts', iface: 'hosts' },
          })
          .version(false),
      async (argv) => {
        const { hosts, json = false, answer = false, ...rest } = argv
        if (answer) {
          await answerQuestions(process.stdin, (text) => {
            context.console.write('stdout', text)
          })
        } else if (hosts === undefined) await diagnose(json, context)
        else await compareHosts({ ...rest, portRange: argv['port-range'], hosts, json }, context)
      },
    )
}

interface CompareRequest {
  readonly hosts: string
  readonly json: boolean
  readonly include?: string | undefined
  readonly exclude?: string | undefined
  readonly ssh?: string | undefined
  readonly port?: string | undefined
  readonly portRange?: string | undefined
  readonly iface?: string | undefined
}

/** Approximate seconds of a round of measurements, and of starting the hosts. */
const [ROUND, START] = [1.5, 4]

/** @throws ERR_TSR_USAGE */
async function compareHosts(request: CompareRequest, context: CommandContext): Promise<void> {
  const { env, cwd, console, interrupts } = context
  const { ssh = 'ssh', portRange, iface } = request
  const port = readFlag('port', request.port ?? '29500', integerFrom(1, HIGHEST_PORT, 'a port'))
  if (portRange !== undefined) readFlag('port-range', portRange, ports)
  const hosts = chooseHosts(readHosts(request.hosts, cwd), request)
  const links = hosts.length * (hosts.length - 1)
  const seconds = Math.round(START + ROUND * (hosts.length - 1))
  console.write(
    'stderr',
    `tsrun: looks at ${hosts.length} hosts and ${links} links between them, about ${seconds} s\n`,
  )
  const { stop } = interrupts
  const reach = { ssh: readSsh(ssh), env, cwd }
  const survey = await surveyHosts({ hosts, reach, port, portRange, iface, signal: stop })
  if (stop.aborted) {
    context.exitCode = (stop.reason as Interruption).exitCode
    return
  }
  if (request.json) console.write('stdout', surveyJson(survey, port))
  else console.print('stdout', surveyText(survey, port))
  context.exitCode = canRun(remarksOf(survey, port)) ? 0 : 1
}

async function diagnose(asJson: boolean, context: CommandContext): Promise<void> {
  const { env, cwd, console, interrupts } = context
  const { stop } = interrupts
  const facts = await gatherFacts(env, cwd, stop)
  if (stop.aborted) {
    context.exitCode = (stop.reason as Interruption).exitCode
    return
  }
  const findings = checks.flatMap((check) => check(facts))
  if (asJson) console.write('stdout', reportJson(findings))
  else console.print('stdout', reportText(findings))
  context.exitCode = canTrain(findings) ? 0 : 1
}

const labels = { ok: 'OK', note: 'note', problem: 'FAILS' } as const

/** Whether the default backend can train here. */
export function canTrain(findings: readonly Finding[]): boolean {
  return findings.every(({ state }) => state !== 'problem')
}

export function reportText(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ name }) => name.length))
  const lines = findings.flatMap(({ name, state, found, advice, details = [] }) => {
    const margin = ' '.repeat(7 + width)
    return [
      `${labels[state].padEnd(7)}${name.padEnd(width)}  ${found}`,
      ...details.map((line) => `${margin}  ${line}`),
      ...(advice === undefined ? [] : [`${margin}  -> ${advice}`]),
    ]
  })
  const end = canTrain(findings)
    ? 'The default backend trains here.'
    : 'The default backend cannot train here: see FAILS above.'
  return `${[`tsrun ${version}`, ...lines, end].join('\n')}\n`
}

function reportJson(findings: readonly Finding[]): string {
  const report = { version, canTrain: canTrain(findings), checks: findings }
  return `${JSON.stringify(report, null, 2)}\n`
}
