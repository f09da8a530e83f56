import { readFileSync } from 'node:fs'
import { packageFolder } from './package-folder.ts'

/** Version of tsrun. */
export const version = readVersion()

function readVersion(): string {
  const file = readFileSync(new URL('package.json', packageFolder), 'utf8')
  return (JSON.parse(file) as { version: string }).version
}
