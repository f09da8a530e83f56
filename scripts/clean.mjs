// Removes the output of the build and of the tests.
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const packages = readdirSync(join(root, 'packages'))

for (const path of [...packages.map((name) => join('packages', name, 'dist')), 'coverage']) {
  rmSync(join(root, path), { recursive: true, force: true })
}
