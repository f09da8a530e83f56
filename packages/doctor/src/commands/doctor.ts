import { flag, parsePortRange, text } from '@tsrun/core'
import {
  chooseHosts,
  type CommandContext,
  declareCommand,
  type Flags,
  hostFlags,
  portRange as ports,
  readHosts,
  readSsh,
  type ValuesOf,
  version,
} from '@tsrun/launcher/host'
import { judge, type Finding } from '../host/checks.ts'
import { gatherFacts } from '../host/gather.ts'
import { answerQuestions } from '../hosts/agent.ts'
import { canRun, remarksOf, surveyText } from '../hosts/report.ts'
import { surveyHosts } from '../hosts/survey.ts'

const needs = 'hosts'

const flags = {
  json: { reads: flag, description: 'print the report as JSON' },
  hosts: { description: 'the file with the hosts' },
  ...hostFlags(needs),
  'port-range': {
    needs,
    reads: text.refine((range) => parsePortRange(range) !== undefined, ports.expected),
    description: 'the ports of the ranks',
  },
  iface: { needs, description: 'the interface or address of the ranks' },
  answer: { reads: flag, description: '' },
} as const satisfies Flags

/** `tsrun doctor` */
export const command = declareCommand({
  usage:
    '$0 doctor [--json]\n$0 doctor --hosts FILE [options]\n\nChecks this host: Node, koffi, shared memory, ' +
    'limits, cores, tensor backends and their ' +
    'devices, BLAS, GPUs. Each line is OK or says what to do. Each backend that is ' +
    'installed trains one step in a process of its own. The exit code is 0 when the default ' +
    'backend (wasm) can train, and 1 otherwise.\n\nWith --hosts it checks the hosts of a file, as tsrun hosts ' +
    'has it, and the network between each two of them, through ssh: the addresses of the ranks, whether they ' +
    'are reached, round trips, bandwidth, clocks, versions, limits. The exit code is 0 when a job can run on ' +
    'all of them.',
  flags,
  run: async (values, context) => {
    const { hosts, json, answer } = values
    if (answer === true) {
      await answerQuestions(process.stdin, (said) => {
        context.console.write('stdout', said)
      })
    } else if (hosts === undefined) await diagnose(json === true, context)
    else await compareHosts(hosts, values, context)
  },
})

async function compareHosts(
  file: string,
  { json, port, 'port-range': portRange, iface, ...given }: ValuesOf<typeof flags>,
  context: CommandContext,
): Promise<void> {
  const { env, cwd, console, interrupts } = context
  const signal = interrupts.stop
  const hosts = chooseHosts(readHosts(file, cwd), given)
  const links = hosts.length * (hosts.length - 1)
  console.write('stderr', `tsrun: looks at ${hosts.length} hosts and ${links} links between them\n`)
  const reach = { ssh: readSsh(given.ssh), env, cwd }
  const survey = await surveyHosts({ hosts, reach, port, portRange, iface, signal })
  signal.throwIfAborted()
  const remarks = remarksOf(survey)
  const report = { version, canRun: canRun(remarks), ...survey, remarks }
  if (json === true) console.write('stdout', inJson(report))
  else console.print('stdout', surveyText(survey, remarks))
  context.exitCode = report.canRun ? 0 : 1
}

async function diagnose(asJson: boolean, context: CommandContext): Promise<void> {
  const { env, cwd, console, interrupts } = context
  const facts = await gatherFacts(env, cwd, interrupts.stop)
  interrupts.stop.throwIfAborted()
  const findings = judge(facts)
  const report = { version, canTrain: canTrain(findings), checks: findings }
  if (asJson) console.write('stdout', inJson(report))
  else console.print('stdout', reportText(findings))
  context.exitCode = report.canTrain ? 0 : 1
}

const labels = { ok: 'OK', note: 'note', problem: 'FAILS' } as const

/** Whether the default backend can train on this host. */
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

function inJson(report: object): string {
  return `${JSON.stringify(report, null, 2)}\n`
}
