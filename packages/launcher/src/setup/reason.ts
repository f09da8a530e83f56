import type { ToolOutput } from './tool.ts'

/** Why npm or pip failed, for advice: the network, the disk, a wheel that there is not, or else. */
interface Failure {
  readonly kind: 'offline' | 'full' | 'no wheel' | 'damaged' | 'other'
  /** In a few words of the tool. */
  readonly reason: string
}

/** What npm says beside the reason. */
const npmNoise = /complete log|npm (error|ERR!)( (code|syscall|errno|path|dest) .*)?$/
const npmOffline =
  /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|E\w*TIMEDOUT|ERR_SOCKET_TIMEOUT)\b/

/** The line of a failed tool's output that says most: npm's and pip's errors, else the last. */
export function reasonOf(output: ToolOutput): string {
  const lines = textOf(output)
    .split('\n')
    .map((line) => line.trim())
  const errors = lines.filter((line) =>
    /^(npm (error|ERR!)|ERROR:|\w*Error\b.*:|.*\berror:)/.test(line),
  )
  const said = errors.filter((line) => !npmNoise.test(line))
  const line = said[0] ?? errors[0] ?? lines.findLast((text) => text !== '')
  return line === undefined ? 'it printed nothing' : line.slice(0, 200)
}

export function npmFailure(output: ToolOutput): Failure {
  const text = textOf(output)
  const kind = isFull(text) ? 'full' : npmOffline.test(text) ? 'offline' : 'other'
  return { kind, reason: reasonOf(output) }
}

/**
 * Pip ends with the same two lines when no version fits and when it has seen no index: the lines
 * before them tell which it was.
 */
export function pipFailure(output: ToolOutput): Failure {
  const text = textOf(output)
  const reason = reasonOf(output)
  if (isFull(text)) return { kind: 'full', reason }
  const sawVersions = /\(from versions: (?!none\))/.test(text)
  if (!sawVersions && /Retrying \(Retry\(|(Connection|Timeout|Proxy)Error/.test(text)) {
    return { kind: 'offline', reason: /\[Errno -?\d+\] [^'")]+/.exec(text)?.[0] ?? reason }
  }
  if (/wheel .* is invalid|not a zip file|BadZipFile/i.test(text))
    return { kind: 'damaged', reason }
  const unfit = /no matching distribution|not a supported wheel/i.test(text)
  return { kind: unfit ? 'no wheel' : 'other', reason }
}

/** What to do where the disk is full; measured with TensorFlow 2.21. */
export function roomAdvice(gpu: boolean, folder: string): string {
  return (
    `a set-up needs some ${gpu ? 7 : 2} GB in ${folder}, and for a while as much in TMPDIR (/tmp): make ` +
    'room, or name other folders in TSRUN_HOME and TMPDIR'
  )
}

function isFull(text: string): boolean {
  return /No space left on device|\bENOSPC\b/i.test(text)
}

function textOf({ stdout, stderr }: ToolOutput): string {
  return `${stdout}\n${stderr}`
}
