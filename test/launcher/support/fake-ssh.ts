import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { version } from '../../internals/launcher/job.ts'

/** A host file, and the flags that run a shell script in place of ssh. */
export interface FakeHosts {
  readonly file: string
  readonly ssh: readonly string[]
}

/**
 * Makes hosts that have this version of tsrun.
 *
 * @param folder - for the host file and the script
 * @param cases - what the hosts do for all other commands: cases of sh, which match the arguments of ssh
 * @param banner - a command that a host runs before it tells its version
 */
export function fakeHosts(
  folder: string,
  names: readonly string[],
  cases: string,
  banner = 'true',
): FakeHosts {
  const [script, file] = [join(folder, 'ssh'), join(folder, 'hosts')]
  const told = `*--version*) ${banner}; echo ${version} ;;`
  writeFileSync(script, `case "$*" in\n${told}\n${cases}\nesac`)
  writeFileSync(file, names.map((name) => `${name}\n`).join(''))
  return { file, ssh: ['--ssh', `sh ${script}`] }
}
