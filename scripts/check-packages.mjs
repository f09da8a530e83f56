// Packs every package and checks the tarballs as a user would get them: with publint (manifest and files),
// attw (types as each resolver sees them). Installs each package in an empty project, with what it depends
// on and nothing else, imports it and runs the first program of its README. Then installs all in another
// project, runs tsrun there, and makes of it what `tsrun init` begins.
import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { transform } from 'esbuild'

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'tsrun-packages-'))
const project = mkdtempSync(join(tmpdir(), 'tsrun-install-'))
const emptyProject = '{ "private": true, "type": "module" }'
const install = ['install', '--silent', '--no-audit', '--no-fund', '--prefer-offline']
let failures = 0

const program = `
  import { destroyProcessGroup, initProcessGroup } from '@tsrun/distributed'

  const group = await initProcessGroup()
  const ones = group.alloc('float32', 1000).fill(1)
  await group.allReduce(ones)
  if (!ones.every((sum) => sum === group.size)) throw new Error('the sum is wrong')
  await destroyProcessGroup()
`

try {
  await run('npm', ['pack', '--workspaces', '--silent', '--pack-destination', folder])
  const tarballs = readdirSync(folder).map((name) => join(folder, name))
  for (const tarball of tarballs) {
    const name = tarball.slice(folder.length + 1)
    await check(`publint ${name}`, 'npx', ['--no', 'publint', 'run', tarball, '--strict'])
    await check(`attw ${name}`, 'npx', ['--no', 'attw', tarball, '--profile', 'esm-only'])
  }
  for (const name of readdirSync(join(root, 'packages'))) await checkAlone(name)
  await checkInstallation(tarballs)
} finally {
  rmSync(folder, { recursive: true, force: true })
  rmSync(project, { recursive: true, force: true })
}
process.exitCode = failures === 0 ? 0 : 1

async function checkAlone(name) {
  const alone = mkdtempSync(join(tmpdir(), 'tsrun-install-'))
  try {
    writeFileSync(join(alone, 'package.json'), emptyProject)
    const tarballs = [...installedWith(name)].map((each) => tarballOf(each))
    await check(`install ${name} alone`, 'npm', [...install, ...tarballs], alone)
    await check(`import it`, 'node', ['-e', `await import('@tsrun/${name}')`], alone)
    const readme = readFileSync(join(root, 'packages', name, 'README.md'), 'utf8')
    const [, first] = /^```ts\n(.*?)^```$/ms.exec(readme) ?? []
    if (first === undefined) return
    const { code } = await transform(first, { loader: 'ts' })
    writeFileSync(join(alone, 'first.mjs'), code)
    await check('run the first program of its README', 'node', ['first.mjs'], alone)
  } finally {
    rmSync(alone, { recursive: true, force: true })
  }
}

/** The package, and those of ours that it needs, without the optional ones. */
function installedWith(name, found = new Set()) {
  if (found.has(name)) return found
  found.add(name)
  const { dependencies, peerDependencies = {}, peerDependenciesMeta = {} } = manifestOf(name)
  const needed = Object.keys(peerDependencies).filter((peer) => !peerDependenciesMeta[peer])
  for (const each of [...Object.keys(dependencies ?? {}), ...needed]) {
    if (each.startsWith('@tsrun/')) installedWith(each.slice('@tsrun/'.length), found)
  }
  return found
}

function tarballOf(name) {
  return join(folder, `tsrun-${name}-${manifestOf(name).version}.tgz`)
}

async function checkInstallation(tarballs) {
  writeFileSync(join(project, 'package.json'), emptyProject)
  await check('install all into an empty project', 'npm', [...install, ...tarballs], project)
  for (const name of packageNames()) {
    await check(`import ${name}`, 'node', ['-e', `await import('${name}')`], project)
  }
  writeFileSync(join(project, 'sum.mjs'), program)
  await check('a job of two ranks', 'npx', ['--no', 'tsrun', '--', '--nproc=2', 'sum.mjs'], project)
  await check('begin a project', 'npx', ['--no', 'tsrun', 'init'], project)
  await check('install what it needs', 'npm', install, project)
  await check('its types', 'npx', ['--no', 'tsc'], project)
  await check('its training', 'npm', ['run', 'train'], project)
  await check('its test', 'npm', ['test'], project)
}

function packageNames() {
  return readdirSync(join(root, 'packages')).map((name) => manifestOf(name).name)
}

function manifestOf(name) {
  return JSON.parse(readFileSync(join(root, 'packages', name, 'package.json'), 'utf8'))
}

async function check(what, command, args, directory = root) {
  try {
    await run(command, args, directory)
    console.log(`ok      ${what}`)
  } catch (error) {
    failures++
    console.log(`FAILED  ${what}\n${error.stdout}${error.stderr}`)
  }
}

function run(command, args, directory = root) {
  return promisify(execFile)(command, args, { cwd: directory, maxBuffer: 2 ** 26 })
}
