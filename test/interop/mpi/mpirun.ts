import { execFile, execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const fixtures = fileURLToPath(new URL('../../fixtures/distributed/', import.meta.url))

export interface Launcher {
  readonly name: string
  readonly command: string
  readonly flags: readonly string[]
  readonly env: NodeJS.ProcessEnv
}

const known: readonly Launcher[] = [
  {
    name: 'Open MPI',
    command: 'mpirun.openmpi',
    flags: ['--oversubscribe', '--bind-to', 'none'],
    env: { OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' },
  },
  {
    name: 'MPICH',
    command: 'mpiexec.mpich',
    flags: [],
    env: { TSRUN_LIBMPI: 'libmpich.so.12', UCX_LOG_LEVEL: 'error' },
  },
]

/** The MPI installations of this machine. */
export function launchers(): Launcher[] {
  return known.filter(({ command }) => {
    const folders = (process.env['PATH'] ?? '').split(':')
    return folders.some((folder) => existsSync(`${folder}/${command}`)) && isWorking(command)
  })
}

function isWorking(command: string): boolean {
  try {
    execFileSync(command, ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

export interface Ending {
  readonly code: number
  readonly output: string
  /** What the ranks have said, of this word. */
  readonly said: (word: string) => Record<string, unknown>[]
}

/** Runs a program of test/fixtures/distributed on some ranks. */
export async function runRanks(
  { command, flags, env }: Launcher,
  size: number,
  program: readonly string[],
  more: NodeJS.ProcessEnv = {},
): Promise<Ending> {
  const [file, ...rest] = program
  const args = [...flags, '-n', String(size), process.execPath, `${fixtures}${file}`, ...rest]
  // When ranks leave without MPI_Finalize, as they do after an error, mpirun 4.1 crashes now and then, or
  // hangs with all its ranks gone and ignores SIGTERM.
  const limit = { timeout: 110_000, killSignal: 'SIGKILL' } as const
  const options = { env: { ...process.env, ...env, ...more }, ...limit }
  return await new Promise((resolve) => {
    const child = execFile(command, args, options, (_, stdout, stderr) => {
      const lines = stdout.split('\n').filter((line) => line.startsWith('{"word"'))
      const words = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
      resolve({
        code: child.exitCode ?? -1,
        output: stdout + stderr,
        said: (word) => words.filter((line) => line['word'] === word),
      })
    })
  })
}
