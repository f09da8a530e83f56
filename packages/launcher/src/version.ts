import { readFileSync } from 'node:fs'

/** Version of tsrun. */
export const version = readVersion()

function readVersion(): string {
  const file = readFileSync(new URL('../package.json', import.meta.url), 'utf8')
  return (JSON.parse(file) as { version: string }).version
}
