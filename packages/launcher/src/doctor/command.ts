import { tsrError } from '@tsrun/core'
import type { Interruption } from '../terminate/interrupts.ts'
import { checks } from './checks/checks.ts'
import { gatherFacts } from './gather.ts'
import { canTrain, reportJson, reportText } from './report.ts'

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
