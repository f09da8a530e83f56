import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { root } from './run.ts'

const docs = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.md') && !/^(node_modules|\.vitepress)\//.test(name))
  .map((name) => join('docs', name))

/** README.md of each package, by path from the root of the repository. */
export const packageReadmes = readdirSync(join(root, 'packages'))
  .map((name) => join('packages', name, 'README.md'))
  .filter((path) => existsSync(join(root, path)))

/** The pages for users: README.md, docs and the packages, by path from the root of the repository. */
export const userPages = ['README.md', ...docs, ...packageReadmes]

/** All pages whose links and paths are checked. */
export const pages = [
  ...userPages,
  'CHANGELOG.md',
  'CODE_OF_CONDUCT.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'examples/README.md',
  'examples/exercises.md',
  'scripts/bench/README.md',
  'scripts/parity/README.md',
  'test/README.md',
]
