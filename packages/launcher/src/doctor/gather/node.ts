import { createRequire } from 'node:module'
import { join } from 'node:path'
import { nodeAbilities } from '../../plan/typescript-loader.ts'
import type { NodeFacts, NpmFacts } from '../facts.ts'
import { run } from './run.ts'

export function readNode(env: NodeJS.ProcessEnv, cwd: string): NodeFacts {
  return {
    ...nodeAbilities(env),
    system: `${process.platform}-${process.arch}`,
    tsx: resolveFrom([join(cwd, 'any.js'), import.meta.url], 'tsx'),
  }
}

export async function readNpm(cwd: string): Promise<NpmFacts | undefined> {
  const { stdout, failure } = await run('npm', ['config', 'list', '--json'], { cwd })
  if (failure !== undefined) return undefined
  try {
    const config = JSON.parse(stdout) as Record<string, unknown>
    const version = /npm\/(\S+)/.exec(String(config['user-agent']))?.[1]
    if (version === undefined) return undefined
    return { version, ignoresScripts: config['ignore-scripts'] === true }
  } catch {
    return undefined
  }
}

/** The file that the first of these places finds the package at. */
export function resolveFrom(places: readonly string[], specifier: string): string | undefined {
  for (const place of places) {
    try {
      return createRequire(place).resolve(specifier)
    } catch {
      // the next place
    }
  }
  return undefined
}
