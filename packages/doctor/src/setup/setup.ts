import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { devNull, hostname } from 'node:os'
import { dirname, join } from 'node:path'
import {
  distrustOf,
  isTsrError,
  makeFolders,
  thisSystem,
  tsrunHome,
  writeManifest,
} from '@tsrun/core'
import { isAlive } from '@tsrun/launcher/host'
import { setupError, type ToolContext } from './tool.ts'

/** A component that `tsrun setup NAME` installs in the folder NAME of TSRUN_HOME. */
export interface Component {
  readonly name: 'tensorflow' | 'blas'
  readonly title: ToolContext['title']
  /** Finds the installation that the manifest describes. @throws ERR_TSR_SETUP_MANIFEST */
  readonly find: (env: NodeJS.ProcessEnv) => Installation | undefined
  /** Installs into a new folder. @returns the manifest, and a sentence that describes the result */
  readonly build: (
    context: ToolContext,
    folder: string,
  ) => Promise<readonly [manifest: object, sentence: string]>
}

export interface Installation {
  readonly folder: string
  readonly system: string
  readonly sentence: string
  /** Tests the installation in a new process. @returns the problem if it does not work */
  test(context: ToolContext): Promise<Tested | string>
}

/** An installation that works. */
interface Tested {
  readonly sentence: string
  /** Whether ranks can use the installation on this host now; for example, its GPUs may be missing. */
  readonly isUsable: boolean
  /** Whether the installation matches the user's request. */
  readonly isCurrent: boolean
}

/**
 * Installs a component unless it is already installed. The previous installation stays usable until the
 * manifest points to the new one.
 *
 * @param isCheck - whether to install nothing and only to report whether the component works
 * @returns whether ranks can use the component
 */
export async function setUpComponent(
  given: Omit<ToolContext, 'log' | 'title'>,
  component: Component,
  isCheck: boolean,
): Promise<boolean> {
  const { name, title } = component
  const { env, say } = given
  const home = join(tsrunHome(env), name)
  const context = { ...given, title, log: join(home, 'setup.log') }
  const { sentence, isUsable, isCurrent, folder } = await examine(context, component, home)
  if (isCheck) {
    say(sentence)
    return isUsable
  }
  if (isCurrent) {
    removeAbandoned(home, folder)
    say(`${sentence}; there is nothing to do`)
    return true
  }
  say(`installing into ${home} (TSRUN_HOME chooses another folder)`)
  say(await install(context, component, home, folder))
  return true
}

async function examine(
  context: ToolContext,
  { name, title, find }: Component,
  home: string,
): Promise<Tested & { readonly folder?: string | undefined }> {
  const command = `npx tsrun setup ${name}`
  const unusable = (sentence: string, folder?: string) => ({
    sentence,
    folder,
    isUsable: false,
    isCurrent: false,
  })
  let found: Installation | undefined
  try {
    found = find(context.env)
  } catch (error) {
    if (!isTsrError(error)) throw error
    return unusable(error.message)
  }
  if (found === undefined) return unusable(`${title} is not set up in ${home}: run \`${command}\``)
  const { folder, sentence, system } = found
  const tested =
    system === thisSystem
      ? await found.test({ ...context, log: devNull })
      : `it was made for ${system}, and this is ${thisSystem}`
  if (typeof tested !== 'string') return { ...tested, folder }
  return unusable(`${sentence}, but it does not work (${tested}): run \`${command}\` again`, folder)
}

/** Installs a component in a new folder, and points the manifest to it at the end. */
async function install(
  context: ToolContext,
  { name, build }: Component,
  home: string,
  previous: string | undefined,
): Promise<string> {
  makeHome(context, home)
  removeAbandoned(home, previous)
  const folder = mkdtempSync(join(home, `${ownPrefix()}${process.pid}-`))
  try {
    const [manifest, sentence] = await build(context, folder)
    writeManifest(name, manifest, context.env)
    if (previous !== undefined && dirname(previous) === home) remove(previous)
    return sentence
  } catch (error) {
    remove(folder)
    throw error
  }
}

function makeHome({ env, log, title }: ToolContext, home: string): void {
  const distrust = distrustOf(tsrunHome(env)) ?? distrustOf(home)
  if (distrust !== undefined) {
    throw setupError(`${home} is not safe: ${distrust}; name another folder in TSRUN_HOME`, title)
  }
  try {
    makeFolders(home)
    rmSync(log, { force: true })
    writeFileSync(log, '', { flag: 'wx' })
  } catch (error) {
    const problem = `${home} cannot be written (${(error as Error).message})`
    throw setupError(`${problem}: name another folder in TSRUN_HOME`, title)
  }
}

/** Removes the build folders of set-ups that were killed on this host. */
function removeAbandoned(home: string, inUse: string | undefined): void {
  for (const name of readdirSync(home)) {
    const folder = join(home, name)
    const pid = Number(name.startsWith(ownPrefix()) ? name.split('-').at(-2) : NaN)
    if (!Number.isNaN(pid) && folder !== inUse && !isAlive(pid)) remove(folder)
  }
}

function remove(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
}

/** Prefix of the build folders of this host. A process ID follows in the name of a folder. */
function ownPrefix(): string {
  return `build-${hostname()}-`
}
