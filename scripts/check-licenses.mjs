// Checks the licences of everything that an installation of the packages brings: the dependencies in
// package-lock.json that are not only for development.
import { readFileSync } from 'node:fs'
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
for (const line of refused) console.error(`licence not allowed: ${line}`)
if (refused.length === 0) console.log(`${count} packages, all under allowed licences.`)
process.exitCode = refused.length > 0 ? 1 : 0

/** `(MIT OR GPL-3.0)` leaves the choice; `MIT AND ISC` asks for both. */
function isAllowed(expression) {
  if (typeof expression !== 'string') return false
  return expression
    .replaceAll(/[()]/g, '')
    .split(' OR ')
    .some((one) => one.split(' AND ').every((license) => allowed.includes(license.trim())))
}
