import { checks } from '../doctor/checks.ts'
import type { Finding } from '../doctor/facts.ts'
import { gatherFacts } from '../doctor/gather.ts'
import { version } from '../job/package.ts'
import type { Interruption } from '../processes/interrupts.ts'
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
            '$0 doctor [--json]\n\nChecks this host: Node, koffi, shared memory, limits, cores, tensor backends and their ' +
              'devices, GPUs, MPI. Each line is OK or says what to do. Each backend that is ' +
              'installed trains one step in a process of its own. The exit code is 0 when the default ' +
              'backend (wasm) can train, and 1 otherwise.',
          )
          .option('json', { type: 'boolean', describe: 'print the report as JSON' })
          .version(false),
      (argv) => diagnose(argv.json === true, context),
    )
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
  console.write('stdout', asJson ? reportJson(findings) : reportText(findings))
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
