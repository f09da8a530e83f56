import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, delimiter, join } from 'node:path'
import {
  list,
  object,
  parseJson,
  text,
  thisSystem,
  type Of,
  type TensorFlowManifest,
} from '@tsrun/core'
import { packageFolder } from '../package.ts'
import { npmLock, npmManifest, OFFICIAL_ARCHIVES, TFJS_VERSION } from './pins.ts'
import {
  npmFailure,
  reasonOf,
  roomAdvice,
  runTool,
  setupError,
  sizeOf,
  type ToolContext,
} from './tool.ts'

/** A file that an install script downloaded. */
type Download = Of<typeof download>
const download = object({ url: text, sha256: text })

/** The module that records downloads, as a URL because NODE_OPTIONS cannot hold paths with spaces. */
const recorder = new URL('src/setup/record-downloads.mjs', packageFolder).href

/** The folder in which npm installs the package. */
export function folderOfPackage(folder: string, name: TensorFlowManifest['package']): string {
  return join(folder, 'node_modules', name)
}

/**
 * Installs the package of the binding and Node's headers, without their install scripts.
 *
 * @throws ERR_TSR_SETUP
 */
export async function installPackages(
  context: ToolContext,
  npm: string,
  folder: string,
  name: TensorFlowManifest['package'],
): Promise<void> {
  writeFileSync(join(folder, 'package.json'), JSON.stringify(npmManifest(name), null, 2))
  writeFileSync(join(folder, 'package-lock.json'), npmLock(name))
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--omit=dev']
  const output = await runTool(context, npm, ['ci', '--prefix', folder, ...flags], { cwd: folder })
  if (output.ok && isInstalled(folder, name)) return
  const { kind, reason } = npmFailure(output)
  const advice =
    kind === 'full'
      ? roomAdvice(sizeOf(name === '@tensorflow/tfjs-node-gpu'), folder)
      : kind === 'offline'
        ? 'this host cannot reach the registry of your npm configuration: see npm config get registry'
        : kind === 'other file'
          ? 'the registry of your npm configuration gives other files than those that tsrun was tested with'
          : 'check the registry of your npm configuration, and run the command again'
  throw setupError(
    `npm could not install ${name} ${TFJS_VERSION} (${reason}): ` +
      `${advice}; all output is in ${context.log}`,
  )
}

function isInstalled(folder: string, name: TensorFlowManifest['package']): boolean {
  try {
    const manifest = readFileSync(join(folderOfPackage(folder, name), 'package.json'), 'utf8')
    return parseJson(manifest, object({ version: text }))?.version === TFJS_VERSION
  } catch {
    return false
  }
}

/**
 * Runs the package's install script, which downloads a library and a binding. Checks the hashes before
 * any downloaded code runs.
 *
 * @returns the downloads without a known hash
 * @throws ERR_TSR_SETUP
 */
export async function installOfficially(
  context: ToolContext,
  folder: string,
  name: TensorFlowManifest['package'],
): Promise<readonly Download[]> {
  const args = name === '@tensorflow/tfjs-node-gpu' ? ['gpu', 'download'] : []
  const path = [join(folder, 'node_modules/.bin'), context.env['PATH'] ?? ''].join(delimiter)
  const record = join(folder, 'downloads')
  const output = await runTool(context, process.execPath, ['scripts/install.js', ...args], {
    cwd: folderOfPackage(folder, name),
    env: {
      PATH: path,
      TSRUN_DOWNLOADS: record,
      NODE_OPTIONS: `${context.env['NODE_OPTIONS'] ?? ''} --import=${recorder}`,
    },
  })
  if (!output.ok) {
    throw setupError(
      `the install script of ${name} failed (${reasonOf(output)}): it needs the network, and a system for which ` +
        `there is a download (this is ${thisSystem}); without --official, the binding is built ` +
        `with a wheel from pip; all output is in ${context.log}`,
    )
  }
  const lines = existsSync(record) ? readFileSync(record, 'utf8').trimEnd().split('\n') : []
  const downloads = parseJson(`[${lines.join(',')}]`, list(download)) ?? []
  return compareDownloads(downloads, context.sha256)
}

/**
 * Rejects a download whose hash differs from the known hash. If a download has no known hash, its hash
 * must be in `accepted`, unless `accepted` is empty.
 *
 * @returns the downloads that are neither known nor accepted
 * @throws ERR_TSR_SETUP
 */
export function compareDownloads(
  downloads: readonly Download[],
  accepted: readonly string[] = [],
): Download[] {
  if (downloads.length === 0) {
    throw setupError('the install script has downloaded nothing whose hash could be compared')
  }
  return downloads.filter(({ url, sha256 }) => {
    const known = OFFICIAL_ARCHIVES[basename(new URL(url).pathname)]
    const wanted = known === undefined ? accepted : [known]
    if (wanted.includes(sha256)) return false
    if (known === undefined && accepted.length === 0) return true
    throw setupError(
      `${url} has the SHA-256 ${sha256}, and not ${wanted.join(' or ')}: it was changed on its ` +
        'way or at its source; find out who before you use it',
    )
  })
}
