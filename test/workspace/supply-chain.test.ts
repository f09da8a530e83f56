import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const workflows = readdirSync(`${root}.github/workflows`)

it.each(workflows)('every action of %s is pinned to a commit', (name) => {
  const text = readFileSync(`${root}.github/workflows/${name}`, 'utf8')
  const uses = Array.from(text.matchAll(/uses: *(\S+)(.*)/g), ([, action, rest]) => ({
    action,
    version: rest,
  }))
  expect(uses.length).toBeGreaterThan(0)
  for (const { action, version } of uses) {
    expect(action).toMatch(/@[0-9a-f]{40}$/)
    expect(version).toMatch(/^ # v\d/)
  }
})

it('all dependencies of the packages and all bundled packages have allowed licences', () => {
  const said = execFileSync(process.execPath, ['scripts/check-licenses.mjs'], {
    cwd: root,
    encoding: 'utf8',
  })
  const [, installed, bundled] = /^(\d+) installed and (\d+) bundled packages, all/.exec(said)!
  const notices = readdirSync(`${root}packages`)
    .map((name) => `${root}packages/${name}/dist/THIRD-PARTY-LICENSES.txt`)
    .filter((path) => existsSync(path))
    .flatMap((path) => readFileSync(path, 'utf8').match(/^\S+ \d+\.\d+\.\d+ \(.*\)$/gm)!)
  expect(Number(installed)).toBeGreaterThan(20)
  expect(Number(bundled)).toBe(new Set(notices).size)
  // No package lists these as dependencies: they are only in bundles.
  for (const name of ['msgpackr', 'preact', 'uplot', 'fastest-levenshtein']) {
    expect(notices.join('\n')).toMatch(new RegExp(`^${name} `, 'm'))
  }
})

it('images of workflows are pinned by digest', () => {
  for (const name of workflows) {
    const text = readFileSync(`${root}.github/workflows/${name}`, 'utf8')
    const images = text.match(/\banchore\/\S+/g) ?? []
    for (const image of images) expect(image).toMatch(/:v[\d.]+@sha256:[0-9a-f]{64}$/)
    expect(text).not.toContain(':latest')
  }
})

it('dependencies have exact versions', () => {
  for (const name of readdirSync(`${root}packages`)) {
    const { dependencies = {}, optionalDependencies = {} } = JSON.parse(
      readFileSync(`${root}packages/${name}/package.json`, 'utf8'),
    ) as Record<string, Record<string, string> | undefined>
    for (const version of Object.values({ ...dependencies, ...optionalDependencies })) {
      expect(version).toMatch(/^\d+\.\d+\.\d+$/)
    }
  }
})

it.each([
  'package-lock.json',
  'docs/package-lock.json',
  'packages/doctor/src/setup/pins/tfjs-node.lock.json',
  'packages/doctor/src/setup/pins/tfjs-node-gpu.lock.json',
])('every package of %s that comes from a registry has its hash', (path) => {
  const { packages } = JSON.parse(readFileSync(root + path, 'utf8')) as {
    packages: Record<string, { link?: boolean; integrity?: string }>
  }
  // folders of this repository have no node_modules in their path, and links point to them
  const fetched = Object.entries(packages).filter(
    ([place, { link }]) => place.includes('node_modules/') && link !== true,
  )
  expect(fetched.length).toBeGreaterThan(100)
  const unhashed = fetched.filter(([, { integrity = '' }]) => !integrity.startsWith('sha512-'))
  expect(unhashed.map(([place]) => place)).toEqual([])
})

it('optional packages for users are development dependencies here, which npm ci --omit=dev leaves out', () => {
  const { packages } = JSON.parse(readFileSync(`${root}package-lock.json`, 'utf8')) as {
    packages: Record<string, { devOptional?: boolean }>
  }
  const kept = Object.entries(packages).filter(([, { devOptional }]) => devOptional)
  expect(kept.map(([place]) => place)).toEqual([])
})
