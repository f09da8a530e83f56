// Checks the packages as a user would get them: npm run check:packages
//
// Packs every package and checks the tarballs with publint (manifest and files) and attw (types as each
// resolver sees them), and what npm would refuse to publish. Installs each package in an empty project,
// with what it depends on and nothing else, and runs the first program of its README on Node, and on Bun and
// Deno if they are on the PATH. Also goes from an empty folder to a trained epoch, as `npm create @tsrun`
// begins it, and runs tsrun and the program of README.md there. Then starts ranks in a project of Yarn's
// Plug'n'Play, and from tests of Vitest.
import { execFile, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { transform } from 'esbuild'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { addressOf, folders, readManifest, refusals, root } from './manifests.mjs'

/** The largest installations, in packages and megabytes (du). */
const bounds = {
  distributed: { packages: 14, megabytes: 10 },
  all: { packages: Infinity, megabytes: 170 },
}
/** How a package's types are resolved by users whom an ES module does not serve. */
const unserved = ['node10', 'node16-cjs']
/** What runs a program, and its arguments before the program. */
const runtimes = { node: [], bun: [], deno: ['run', '--allow-all'] }
/** Steps of the project's training with 128 images each: MNIST has 60,000. */
const STEPS_OF_AN_EPOCH = 469
/** Tools that nothing else here needs. */
const YARN = '@yarnpkg/cli-dist@4.18.1'
const VITEST = ['vitest@4.1.11', '@vitest/coverage-v8@4.1.11']
const TSX = `tsx@${readManifest().devDependencies.tsx}`

const folder = mkdtempSync(join(tmpdir(), 'tsrun-packages-'))
const project = mkdtempSync(join(tmpdir(), 'tsrun-install-'))
const emptyProject = '{ "private": true, "type": "module" }'
const install = ['install', '--silent', '--no-audit', '--no-fund', '--prefer-offline']
const names = folders.map((each) => basename(each))
let failures = 0

const program = `
  import { destroyProcessGroup, initProcessGroup } from '@tsrun/distributed'

  const group = await initProcessGroup()
  const ones = group.alloc('float32', 1000).fill(1)
  await group.allReduce(ones)
  if (!ones.every((sum) => sum === group.size)) throw new Error('the sum is wrong')
  await destroyProcessGroup()
`

const vitestProgram = `
  import { expect, it } from 'vitest'
  import { spawn } from '@tsrun/launcher'
  import { twice } from './twice.ts'

  it('sums over ranks', async () => {
    const sums = await spawn(
      async (rank: number, base: number) => {
        const { initProcessGroup } = await import('@tsrun/distributed')
        const { twice } = await import('./twice.ts')
        const group = await initProcessGroup()
        const buffer = Float32Array.of(base + rank)
        await group.allReduce(buffer)
        await group.destroy()
        return twice(buffer[0]!)
      },
      { nproc: 2, args: [10], base: import.meta.url },
    )
    expect(sums).toEqual([42, 42])
  }, 60_000)

  it('refuses a function that uses what its module imports', async () => {
    await expect(async () => spawn((rank: number) => twice(rank))).rejects.toThrow('imports')
  })
`

try {
  await run('npm', ['pack', '--workspaces', '--silent', '--pack-destination', folder])
  const found = findRuntimes()
  const queue = names.values()
  const checkRest = async () => {
    for (const name of queue) await checkAlone(name, found)
  }
  // Side by side, because npm often waits for the disk.
  await Promise.all([
    checkProject(names.map(tarballOf), found).then(checkRest),
    checkTarballs().then(checkPlugAndPlay).then(checkVitest).then(checkRest),
    checkRest(),
  ])
} finally {
  await remove(folder)
  await remove(project)
}
process.exitCode = failures === 0 ? 0 : 1

async function checkTarballs() {
  await checkPublishing()
  for (const name of names) {
    const bytes = new Uint8Array(readFileSync(tarballOf(name)))
    const { messages, pkg } = await publint({ pack: { tarball: bytes.buffer }, strict: true })
    const errors = messages.filter(({ type }) => type === 'error')
    reportProblems(
      `publint ${name}`,
      errors.map((each) => formatMessage(each, pkg)),
    )
    if (!isImported(name)) continue
    const { types, problems } = await checkPackage(createPackageFromTarballData(bytes))
    const wrong = problems?.filter(({ resolutionKind }) => !unserved.includes(resolutionKind))
    const texts = wrong?.map((each) => JSON.stringify(each)) ?? []
    reportProblems(`attw ${name}`, types ? texts : ['it has no types'])
  }
}

/** Asks npm, and compares with the repository that publishes: this one's address, or that of the workflow. */
async function checkPublishing() {
  const { GITHUB_REF_TYPE: kind, GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = process.env
  const own = addressOf(readManifest().repository.url)
  const address = kind === 'tag' ? `${server}/${name}` : own
  if (own.includes('/OWNER/')) console.log(`note    ${own} is a placeholder: see docs/releasing.md`)
  const dryRun = ['publish', '--workspaces', '--dry-run', '--ignore-scripts', '--force']
  const result = await attempt('npm', dryRun)
  const isCorrected = result.stderr.includes('auto-corrected')
  const problem = isCorrected ? 'npm would correct a package.json' : result.problem
  report('npm publish --dry-run', { ...result, problem })
  for (const each of folders)
    reportProblems(`publish ${each}`, refusals(readManifest(each), address))
}

function findRuntimes() {
  const all = Object.keys(runtimes)
  const missing = all.filter((name) => spawnSync(name, ['--version']).error)
  for (const name of missing) console.log(`skipped ${name}: it is not on the PATH`)
  return all.filter((name) => !missing.includes(name))
}

async function checkAlone(name, found) {
  const alone = mkdtempSync(join(tmpdir(), 'tsrun-install-'))
  try {
    writeFileSync(join(alone, 'package.json'), emptyProject)
    const tarballs = [...installedWith(name)].map(tarballOf)
    await checkInstallation(`${name} alone`, tarballs, alone, bounds[name])
    if (!isImported(name)) return
    const first = firstProgramOf(`packages/${name}`)
    const { code } = await transform(first ?? `await import('@tsrun/${name}')`, { loader: 'ts' })
    writeFileSync(join(alone, 'first.mjs'), code)
    const what = first === undefined ? 'import' : 'run the first program of the README of'
    for (const runtime of found) {
      await check(
        `${what} ${name} on ${runtime}`,
        runtime,
        [...runtimes[runtime], 'first.mjs'],
        alone,
      )
    }
  } finally {
    await remove(alone)
  }
}

/** The first program of a README; undefined if it has none. */
function firstProgramOf(directory) {
  const readme = readFileSync(join(root, directory, 'README.md'), 'utf8')
  return /^```ts\n(.*?)^```$/ms.exec(readme)?.[1]
}

/** Installs tarballs, and shows what that brings. */
async function checkInstallation(what, tarballs, directory, bound) {
  const result = await attempt('npm', [...install, ...tarballs], directory)
  if (result.problem !== '') return report(`install ${what}`, result)
  const lock = join(directory, 'node_modules/.package-lock.json')
  const packages = Object.keys(JSON.parse(readFileSync(lock, 'utf8')).packages).length
  const { stdout } = await run('du', ['-sk', 'node_modules'], directory)
  const megabytes = (Number.parseInt(stdout, 10) * 1024) / 1e6
  const isSmall =
    bound === undefined || (packages <= bound.packages && megabytes <= bound.megabytes)
  report(`install ${what}: ${packages} packages, ${megabytes.toFixed(1)} MB`, {
    ...result,
    problem: isSmall
      ? ''
      : `at most ${bound.packages} packages and ${bound.megabytes} MB are allowed`,
  })
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

async function checkProject(tarballs, found) {
  const start = performance.now()
  writeFileSync(join(project, 'package.json'), emptyProject)
  await checkInstallation('all into an empty project', tarballs, project, bounds.all)
  await check('begin a project', 'npx', ['--no', 'create-tsrun'], project)
  await check('install what it needs', 'npm', install, project)
  await check('train an epoch', 'npm', ['run', 'train'], project, {
    STEPS: String(STEPS_OF_AN_EPOCH),
  })
  const seconds = (performance.now() - start) / 1000
  console.log(
    `note    ${seconds.toFixed(0)} s from an empty folder to the first trained epoch, beside other checks`,
  )

  await check('its types', 'npx', ['--no', 'tsc'], project)
  await check('its test', 'npm', ['test'], project)
  const imports = names.filter(isImported).map((name) => `await import('@tsrun/${name}')`)
  await check('import all', 'node', ['-e', imports.join('\n')], project)
  writeFileSync(join(project, 'sum.mjs'), program)
  await check('a job of two ranks', 'npx', ['--no', 'tsrun', '--', '--nproc=2', 'sum.mjs'], project)
  writeFileSync(join(project, 'readme.ts'), firstProgramOf('.'))
  const job = ['node_modules/.bin/tsrun', '--nproc', '2', 'readme.ts']
  // Without a BLAS, all runtimes compute the same bits.
  const exact = { TSRUN_BLAS: 'off' }
  let expected
  for (const runtime of found) {
    const result = await attempt(runtime, [...runtimes[runtime], ...job], project, exact)
    const losses = result.stdout.match(/\d\.\d{8,}/g)?.join(', ')
    expected ??= losses
    const isEqual = losses !== undefined && losses === expected
    const problem = result.problem || (isEqual ? '' : `its losses are ${losses}, not ${expected}`)
    report(`the program of README.md on ${runtime}: losses ${losses}`, { ...result, problem })
  }
}

/** Without node_modules, each package finds only those that it names. */
async function checkPlugAndPlay() {
  const tools = join(folder, 'yarn')
  const directory = join(folder, 'plug-and-play')
  for (const each of [tools, directory]) mkdirSync(each)
  writeFileSync(join(tools, 'package.json'), emptyProject)
  const yarn = join(tools, 'node_modules/@yarnpkg/cli-dist/bin/yarn.js')
  const ours = names.map((name) => [`@tsrun/${name}`, `file:${tarballOf(name)}`])
  const manifest = {
    ...JSON.parse(emptyProject),
    dependencies: { ...Object.fromEntries(ours), tsx: readManifest().devDependencies.tsx },
    resolutions: Object.fromEntries(ours),
  }
  writeFileSync(join(directory, 'package.json'), JSON.stringify(manifest))
  // Yarn's own mark of a project's folder.
  writeFileSync(join(directory, 'yarn.lock'), '')
  writeFileSync(join(directory, 'sum.mjs'), program)
  writeFileSync(join(directory, 'sum.ts'), program.replace('ones =', 'ones: Float32Array ='))
  const { stdout: registry } = await run('npm', ['config', 'get', 'registry'])
  const env = {
    YARN_ENABLE_GLOBAL_CACHE: 'false',
    YARN_ENABLE_IMMUTABLE_INSTALLS: 'false',
    YARN_ENABLE_SCRIPTS: 'false',
    YARN_ENABLE_TELEMETRY: 'false',
    YARN_NODE_LINKER: 'pnp',
    YARN_NPM_REGISTRY_SERVER: process.env['YARN_NPM_REGISTRY_SERVER'] ?? registry.trim(),
    YARN_UNSAFE_HTTP_WHITELIST: new URL(registry).hostname,
  }
  await check('install Yarn', 'npm', [...install, YARN], tools)
  await check("install with Plug'n'Play", 'node', [yarn, 'install'], directory, env)
  for (const script of ['sum.mjs', 'sum.ts']) {
    const args = [yarn, 'tsrun', '--nproc', '2', script]
    await check(`${script} with Plug'n'Play`, 'node', args, directory, env)
  }
  const doctor = await attempt('node', [yarn, 'tsrun', 'doctor'], directory, env)
  const isLost =
    /Cannot find (package|module)|Your application tried to access|isn't declared in/.test(
      doctor.stdout + doctor.stderr,
    )
  const problem = doctor.problem || (isLost ? 'a package was not found' : '')
  report("tsrun doctor with Plug'n'Play", { ...doctor, problem })
}

async function checkVitest() {
  const directory = join(folder, 'vitest')
  mkdirSync(directory)
  writeFileSync(join(directory, 'package.json'), emptyProject)
  writeFileSync(join(directory, 'twice.ts'), 'export const twice = (x: number): number => 2 * x')
  writeFileSync(join(directory, 'sum.test.ts'), vitestProgram)
  const tarballs = [...installedWith('launcher')].map(tarballOf)
  await check('install Vitest', 'npm', [...install, ...VITEST, TSX, ...tarballs], directory)
  await check('spawn in Vitest', 'npx', ['--no', 'vitest', 'run', '--coverage'], directory)
}

async function remove(directory) {
  await rm(directory, { recursive: true, force: true })
}

function manifestOf(name) {
  return readManifest(`packages/${name}`)
}

function tarballOf(name) {
  return join(folder, `tsrun-${name}-${manifestOf(name).version}.tgz`)
}

/** Whether scripts import the package; otherwise it is a command. */
function isImported(name) {
  return manifestOf(name).exports !== undefined
}

function reportProblems(what, problems) {
  report(what, { problem: problems.join('\n'), stdout: '', stderr: '' })
}

async function check(what, command, args, directory, env) {
  report(what, await attempt(command, args, directory, env))
}

function report(what, { problem, stdout, stderr }) {
  if (problem !== '') failures++
  console.log(
    problem === '' ? `ok      ${what}` : `FAILED  ${what}\n${problem}\n${stdout}${stderr}`,
  )
}

/** Runs a command; `problem` is empty if it succeeds. */
async function attempt(command, args, directory, env) {
  try {
    return { problem: '', ...(await run(command, args, directory, env)) }
  } catch ({ message, stdout = '', stderr = '' }) {
    return { problem: message.split('\n')[0], stdout, stderr }
  }
}

function run(command, args, directory = root, env = {}) {
  const options = { cwd: directory, env: { ...process.env, ...env }, maxBuffer: 2 ** 26 }
  return promisify(execFile)(command, args, options)
}
