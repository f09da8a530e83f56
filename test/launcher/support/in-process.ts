import { Writable } from 'node:stream'
import { runCommandLine } from '../../../packages/launcher/src/commands/command-line.ts'
import { Console } from '../../../packages/launcher/src/logs/console.ts'
import { fixtures } from './tsrun.ts'

/** Runs a `tsrun` that starts no rank in this process. */
export async function tsrunHere(
  args: readonly string[],
  { env = {}, cwd = fixtures }: { readonly env?: NodeJS.ProcessEnv; readonly cwd?: string } = {},
): Promise<{ code: number; stdout: string; stderr: string }> {
  const printed = { stdout: '', stderr: '' }
  const collect = (name: 'stdout' | 'stderr'): Writable =>
    new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        printed[name] += chunk.toString()
        done()
      },
    })
  const console = new Console(
    { stdout: collect('stdout'), stderr: collect('stderr') },
    () => undefined,
  )
  const never = new AbortController().signal
  const code = await runCommandLine(args, {
    env: { PATH: process.env['PATH'], ...env },
    cwd,
    console,
    interrupts: { stop: never, kill: never, interrupt: () => undefined, force: () => undefined },
  })
  return { code, ...printed }
}
