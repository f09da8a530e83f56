import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** What `tsrun doctor --json` prints. */
export interface Report {
  readonly canTrain: boolean
  readonly checks: readonly { name: string; state: string; found: string; details?: string[] }[]
}

export function find({ checks }: Report, name: string) {
  return checks.find((check) => check.name === name)
}

/** A project in a folder, whose package @tsrun/training is this module. */
export function makeProject(folder: string, source: string): void {
  const home = join(folder, 'node_modules/@tsrun/training')
  mkdirSync(home, { recursive: true })
  writeFileSync(join(home, 'package.json'), '{ "type": "module", "exports": "./index.js" }')
  writeFileSync(join(home, 'index.js'), source)
}
