import { readFileSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { thisSystem, type TensorFlowManifest } from '@tsrun/core'
import { npmFailure, reasonOf, roomAdvice } from './tool.ts'
import { runTool, setupError, type ToolContext } from './tool.ts'

/** The last release. The sources of its binding work with TensorFlow 2.9 to 2.21. */
export const TFJS_VERSION = '4.22.0'

/** The folder into which npm installs the package. */
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
  const manifest = {
    private: true,
    dependencies: { [name]: TFJS_VERSION, 'node-api-headers': '^1.5.0' },
    // The version that the package asks for has known vulnerabilities.
    overrides: { tar: '^7.5.16' },
  }
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest, null, 2))
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock', '--omit=dev']
  const output = await runTool(context, npm, ['install', '--prefix', folder, ...flags], {
    cwd: folder,
  })
  if (output?.ok === true && isInstalled(folder, name)) return
  const failure = output === undefined ? undefined : npmFailure(output)
  const advice =
    failure?.kind === 'full'
      ? roomAdvice(name === '@tensorflow/tfjs-node-gpu', folder)
      : failure?.kind === 'offline'
        ? 'this host cannot reach the registry of your npm configuration: see npm config get registry'
        : 'check the registry of your npm configuration, and run the command again'
  throw setupError(
    `npm could not install ${name} ${TFJS_VERSION} (${failure?.reason ?? 'it does not start'}): ` +
      `${advice}; all output is in ${context.log}`,
  )
}

function isInstalled(folder: string, name: TensorFlowManifest['package']): boolean {
  try {
    const text = readFileSync(join(folderOfPackage(folder, name), 'package.json'), 'utf8')
    return (JSON.parse(text) as { version?: string }).version === TFJS_VERSION
  } catch {
    return false
  }
}

/** Runs the package's own install script, which downloads a library and a binding. @throws ERR_TSR_SETUP */
export async function installOfficially(
  context: ToolContext,
  folder: string,
  name: TensorFlowManifest['package'],
): Promise<void> {
  const args = name === '@tensorflow/tfjs-node-gpu' ? ['gpu', 'download'] : []
  const path = [join(folder, 'node_modules/.bin'), context.env['PATH'] ?? ''].join(delimiter)
  const output = await runTool(context, process.execPath, ['scripts/install.js', ...args], {
    cwd: folderOfPackage(folder, name),
    env: { PATH: path },
  })
  if (output?.ok === true) return
  const reason = output === undefined ? 'it does not start' : reasonOf(output)
  throw setupError(
    `the install script of ${name} failed (${reason}): it needs the network, and a system for which ` +
      `there is a download (this is ${thisSystem}); without --official, the binding is built ` +
      `with a wheel from pip; all output is in ${context.log}`,
  )
}
