import { spawnSync } from 'node:child_process'

/** What `nvidia-smi -L` says. */
export interface GpuList {
  /** A line for each card, and for each part of one. */
  readonly lines: readonly string[]
  /** False where there is no nvidia-smi, or it does not come to its end. */
  readonly answered: boolean
  /** Why it lists none; undefined where there is no nvidia-smi, or it works. */
  readonly problem: string | undefined
}

/** Milliseconds; a driver without persistence mode takes seconds. */
const LONGEST = 20_000

export function listGpus(env: Readonly<Record<string, string | undefined>>): GpuList {
  const options = { env, encoding: 'utf8', timeout: LONGEST, killSignal: 'SIGKILL' } as const
  const { error, status, stdout, stderr } = spawnSync('nvidia-smi', ['-L'], options)
  if (error !== undefined) {
    const { code } = error as NodeJS.ErrnoException
    const says = code === 'ETIMEDOUT' ? `no answer within ${LONGEST / 1000} s` : error.message
    const problem = code === 'ENOENT' ? undefined : `nvidia-smi: ${says}`
    return { lines: [], answered: false, problem }
  }
  if (status === 0) return { lines: linesOf(stdout), answered: true, problem: undefined }
  const [says = `exit code ${status}`] = linesOf(`${stdout}\n${stderr}`)
  return { lines: [], answered: true, problem: `nvidia-smi: ${says}` }
}

/** The lines that say something. */
export function linesOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trimEnd())
    .filter((line) => line !== '')
}
