import { flag, formatBytes } from '@tsrun/core'
import { declareCommand } from '@tsrun/launcher/host'
import { reportHost, type HostReport } from '../host/environment.ts'

/** `tsrun env` */
export const command = declareCommand({
  usage:
    '$0 env [--json]\n\nPrints, as a list to paste into a bug report, the versions of tsrun, Node and the ' +
    'tensor backends, the system, cores, memory, GPUs, network interfaces, and the environment variables ' +
    'that tsrun reads. Secrets are not printed, only that they are set. tsrun doctor says whether all ' +
    'this can train.',
  flags: { json: { reads: flag, description: 'print the report as JSON' } },
  run: async ({ json }, { env, cwd, console, interrupts: { stop } }) => {
    const report = await reportHost(env, cwd, stop)
    stop.throwIfAborted()
    if (json === true) console.write('stdout', `${JSON.stringify(report, null, 2)}\n`)
    else console.print('stdout', envText(report))
  },
})

/** The report as a Markdown list. */
export function envText(report: HostReport): string {
  const { packages, cpu, memory, variables } = report
  const packageList = Object.entries(packages).map(
    ([name, version]) => `${name.replace('@tsrun/', '')} ${version ?? NOT_FOUND}`,
  )
  const size = (bytes: number | null): string => (bytes === null ? 'none' : formatBytes(bytes))
  const lines = [
    `- tsrun: ${report.tsrun} (${packageList.join(', ')})`,
    `- Node: ${report.node}, V8 ${report.v8}`,
    `- TypeScript: tsx ${report.tsx ?? NOT_FOUND}, typescript ${report.typescript ?? NOT_FOUND}`,
    `- OS: ${report.os ?? NOT_FOUND}, ${report.system}`,
    `- kernel: ${report.kernel}`,
    `- libc: ${report.libc ?? NOT_FOUND}`,
    `- CPU: ${cpu.model ?? NOT_FOUND}`,
    `- cores: ${cpu.cores}, usable: ${cpu.allowed}, cgroup limit: ${cpu.limit ?? 'none'}`,
    `- memory: ${size(memory.size)}, available: ${size(memory.free)}, cgroup limit: ${size(memory.limit)}`,
    ...section('GPUs', gpuLines(report)),
    ...section(
      'backends',
      report.backends.map(
        ({ name, package: of, version }) => `${name}: ${of} ${version ?? NOT_FOUND}`,
      ),
    ),
    `- koffi: ${report.koffi ?? NOT_FOUND}${report.koffiProblem === null ? '' : `, does not load: ${report.koffiProblem}`}`,
    ...section(
      'network interfaces',
      report.interfaces.map(({ name, addresses }) => `${name}: ${addresses.join(', ')}`),
    ),
    ...section(
      'environment variables',
      Object.entries(variables).map(([name, value]) => `${name}: ${asCode(value)}`),
    ),
  ]
  return `${lines.join('\n')}\n`
}

const NOT_FOUND = 'not found'

function section(title: string, lines: readonly string[]): string[] {
  return lines.length === 0
    ? [`- ${title}: none`]
    : [`- ${title}:`, ...lines.map((of) => `  - ${of}`)]
}

function gpuLines({ gpus, gpuProblem }: HostReport): string[] {
  return gpuProblem !== null ? [gpuProblem] : gpus.map((gpu, index) => `${index}: ${gpu}`)
}

/** Formats a value as one line of Markdown code, because values may contain asterisks. */
function asCode(value: string): string {
  if (value === 'set') return value
  const line = JSON.stringify(value).slice(1, -1).replaceAll('\\"', '"')
  return value === '' ? 'empty' : line.includes('`') ? line : `\`${line}\``
}
