import { tsrError } from '@tsrun/core'
import { checks } from '../doctor/checks.ts'
import type { Finding } from '../doctor/facts.ts'
import { gatherFacts } from '../doctor/gather.ts'
import { version } from '../job/package.ts'
import type { Interruption } from '../processes/interrupts.ts'

const help = `tsrun doctor [--json]

Looks at this host: Node, koffi, shared memory, limits, cores, tensor backends and their devices, GPUs,
MPI; each line is OK or says what to do. Each backend that is there trains a step in a process of its
own. The exit code is 0 when the default backend (wasm) can train, else 1.
`

export interface Diagnosis {
  readonly text: string
  readonly exitCode: number
}

/** What `tsrun doctor` prints and exits with. @throws ERR_TSR_USAGE */
export async function diagnose(argv: readonly string[], stop: AbortSignal): Promise<Diagnosis> {
  if (argv[0] === '--help' || argv[0] === '-h') return { text: help, exitCode: 0 }
  if (argv.length > 1 || (argv.length === 1 && argv[0] !== '--json')) {
    throw tsrError('ERR_TSR_USAGE', { problem: 'tsrun doctor takes one flag at most: --json' })
  }
  const facts = await gatherFacts(process.env, process.cwd(), stop)
  if (stop.aborted) return { text: '', exitCode: (stop.reason as Interruption).exitCode }
  const findings = checks.flatMap((check) => check(facts))
  const report = argv.length === 0 ? reportText : reportJson
  return { text: report(findings), exitCode: canTrain(findings) ? 0 : 1 }
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

export function reportJson(findings: readonly Finding[]): string {
  const report = { version, canTrain: canTrain(findings), checks: findings }
  return `${JSON.stringify(report, null, 2)}\n`
}
