// Checks the licences of everything that an installation of the packages brings: the dependencies in
// package-lock.json that are not only for development, and the packages that are a part of bundles.
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

/** Licences under which the packages may be used in any program. */
const allowed = [
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'ISC',
  'MIT',
]

const { packages } = JSON.parse(readFileSync(`${root}package-lock.json`, 'utf8'))
const refused = []
let count = 0
for (const [path, { dev, devOptional, link, license }] of Object.entries(packages)) {
  if (!path.includes('node_modules/') || dev || devOptional || link) continue
  const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
  count += 1
  if (!isAllowed(license)) refused.push(`${name}: ${license ?? 'no licence'}`)
}
if (count === 0) refused.push('package-lock.json names no package')
const bundled = bundledPackages()
for (const [name, license] of bundled) {
  if (!isAllowed(license)) refused.push(`${name}, which is bundled: ${license}`)
}
if (bundled.size === 0) refused.push('dist has no notice of bundled packages: npm run build')
for (const line of refused) console.error(`licence not allowed: ${line}`)
if (refused.length === 0) {
  console.log(
    `${count} installed and ${bundled.size} bundled packages, all under allowed licences.`,
  )
}
process.exitCode = refused.length > 0 ? 1 : 0

/** The packages that scripts/bundle.mjs has put into bundles, with their licences. */
function bundledPackages() {
  const notices = readdirSync(`${root}packages`).flatMap((name) => {
    try {
      return [readFileSync(`${root}packages/${name}/dist/THIRD-PARTY-LICENSES.txt`, 'utf8')]
    } catch {
      return []
    }
  })
  const heading = /(?:^|\n-{80}\n\n|\.\n\n)(\S+ \d+\.\d+\.\d+\S*) \((.*)\)\n\n/g
  return new Map(
    notices.flatMap((text) => Array.from(text.matchAll(heading), ([, name, one]) => [name, one])),
  )
}

/** `(MIT OR GPL-3.0)` leaves the choice; `MIT AND ISC` asks for both. */
function isAllowed(expression) {
  if (typeof expression !== 'string') return false
  return expression
    .replaceAll(/[()]/g, '')
    .split(' OR ')
    .some((one) => one.split(' AND ').every((license) => allowed.includes(license.trim())))
}
