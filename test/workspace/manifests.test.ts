import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import {
  addressOf,
  completed,
  folders,
  readManifest,
  refusals,
  textOf,
} from '../../scripts/manifests.mjs'

const repository = readManifest()
const address = addressOf(repository.repository.url)

// Out of date? `npm run manifests` rewrites them.
it.each(folders)('package.json of %s has the common fields of the repository', (folder) => {
  const manifest = readManifest(folder)
  expect(textOf(manifest)).toBe(textOf(completed(manifest, folder, repository)))
})

it('a new version and address reach every package, and its dependencies on the others', () => {
  const next = {
    ...repository,
    version: '0.2.0',
    repository: { type: 'git', url: 'git+https://example.org/me/fork.git' },
  }
  const manifest = completed(readManifest('packages/layers'), 'packages/layers', next)
  expect(manifest).toMatchObject({
    version: '0.2.0',
    homepage: 'https://example.org/me/fork/tree/main/packages/layers#readme',
    bugs: { url: 'https://example.org/me/fork/issues' },
    repository: { ...next.repository, directory: 'packages/layers' },
    dependencies: { '@tsrun/core': '0.2.0', '@tensorflow/tfjs-core': '4.22.0' },
  })
})

describe('what npm would refuse to publish', () => {
  it.each(folders)('does not occur in %s', (folder) => {
    expect(refusals(readManifest(folder), address)).toEqual([])
  })

  it.each([
    ['no repository', { repository: undefined }, /^repository\.url is "", expected .* \(E422\)$/m],
    [
      'another repository',
      { repository: { type: 'git', url: 'git+https://example.org/other/one.git' } },
      /^repository\.url is "git\+https:\/\/example\.org\/other\/one\.git", expected /m,
    ],
    ['a repository without a type', { repository: {} }, /^repository\.type is not "git"$/m],
    ['restricted access', { publishConfig: {} }, /^publishConfig\.access is not "public"/m],
    ['a private package', { private: true }, /^it is private \(EPRIVATE\)$/m],
    ['no keywords', { keywords: [] }, /^it has no keywords/m],
  ])('is reported: %s', (_, changes, problem) => {
    const manifest = { ...readManifest('packages/core'), ...changes }
    expect(refusals(manifest, address).join('\n')).toMatch(problem)
  })
})

describe('the notes of a release', () => {
  const script = fileURLToPath(new URL('../../scripts/release-notes.mjs', import.meta.url))
  const notesOf = (tag: string) => spawnSync(process.execPath, [script, tag], { encoding: 'utf8' })

  it('are the section of its version in CHANGELOG.md, with links to its files', () => {
    const { status, stdout } = notesOf('v0.1.0')
    expect(status).toBe(0)
    expect(stdout).toMatch(/^The first release/)
    expect(stdout).toContain(`](${address}/blob/v0.1.0/docs/launcher.md)`)
    expect(stdout).not.toMatch(/\]\((?!https)|^## /m)
  })

  it('are refused for a version that CHANGELOG.md does not mention', () => {
    const { status, stderr } = notesOf('v9.9.9')
    expect(status).toBe(1)
    expect(stderr).toContain('CHANGELOG.md has no section [9.9.9]')
  })
})
