import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import { tsrError } from '@tsrun/core'
import type { Script } from './script.ts'

export interface NodeAbilities {
  /** `process.features.typescript`: what Node itself does with TypeScript. */
  readonly typescript: unknown
  readonly version: string
  /** NODE_OPTIONS of the ranks, and more arguments of theirs. */
  readonly nodeOptions: string
}

/** What the Node that runs us can do; ranks run the same one. */
export function nodeAbilities(
  env: NodeJS.ProcessEnv,
  execArgv: readonly string[] = [],
): NodeAbilities {
  return {
    typescript: (process.features as { typescript?: unknown }).typescript,
    version: process.version,
    nodeOptions: [env['NODE_OPTIONS'] ?? '', ...execArgv].join(' '),
  }
}

/**
 * The arguments with which Node runs the script's language: none where Node strips types itself or
 * the user brings a loader, else `--import` of tsx.
 *
 * @param places - files or URLs from where to look for tsx, in this order
 * @throws ERR_TSR_TYPESCRIPT_LOADER
 */
export function loaderArguments(
  script: Script,
  node: NodeAbilities,
  places: readonly string[],
): string[] {
  if (script.language === 'javascript') return []
  if (script.language === 'typescript' && Boolean(node.typescript)) return []
  if (/(^|\s)(--import|--loader|--experimental-loader|--require|-r)[\s=]/.test(node.nodeOptions)) {
    return []
  }
  for (const place of places) {
    const loader = resolveFrom(place, 'tsx')
    if (loader !== undefined) return ['--import', pathToFileURL(loader).href]
  }
  const language = script.language === 'tsx' ? 'JSX' : 'TypeScript'
  const reason = `Node ${node.version} does not run ${language} by itself`
  throw tsrError('ERR_TSR_TYPESCRIPT_LOADER', { script: script.path, reason })
}

function resolveFrom(from: string, specifier: string): string | undefined {
  try {
    return createRequire(from).resolve(specifier)
  } catch {
    return undefined
  }
}
