// Makes an npm package of OpenBLAS for each platform, from the wheels that `tsrun setup blas` installs:
// `npm run blas-packages -- --help`.
import { execFileSync } from 'node:child_process'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { thisSystem } from '@tsrun/core'
import { libraryIn, proveBlas } from '../../packages/doctor/src/setup/blas.ts'
import { OPENBLAS_VERSION } from '../../packages/doctor/src/setup/pins.ts'
import { findPython, installWithPip } from '../../packages/doctor/src/setup/tool.ts'
import { describeOptions, parseOptions, readList, UsageError } from '../bench/command-line.mjs'
import { licenseOf, manifestOf, pipArguments, platformOf, readmeOf, wheels } from './package.ts'

const options = {
  out: { description: 'the folder for the folders of the packages', value: 'FOLDER' },
  platform: {
    description: 'for which platforms; default: all',
    value: 'A,B',
    default: wheels
      .filter(({ unfit }) => unfit === undefined)
      .map(platformOf)
      .join(','),
  },
}
const shared = JSON.parse(
  readFileSync(
    fileURLToPath(new URL('../../packages/training/package.json', import.meta.url)),
    'utf8',
  ),
)

/** @param {readonly string[]} args */
async function main(args) {
  if (args.includes('--help') || args.includes('-h')) {
    console.log(
      'npm run blas-packages -- --out FOLDER: makes npm packages of OpenBLAS from the pinned wheels.\n' +
        'It needs Python with pip, and `npm run build` before it.\n',
    )
    console.log(describeOptions(options))
    return
  }
  const values = parseOptions(options, args)
  if (values['out'] === undefined) throw new UsageError('--out FOLDER is missing')
  const out = resolve(values['out'])
  const plan = readList('platform', values['platform'], wheels.map(platformOf)).map((platform) => {
    const wheel = wheels.find((each) => platformOf(each) === platform)
    if (wheel.unfit !== undefined)
      throw new UsageError(`--platform: no ${platform}: ${wheel.unfit}`)
    const folder = join(out, `blas-${platform}`)
    if (existsSync(folder)) throw new UsageError(`--out: ${folder} exists`)
    return { wheel, folder }
  })
  // A failure leaves the log in this folder.
  const work = mkdtempSync(join(tmpdir(), 'tsrun-blas-packages-'))
  const context = {
    title: /** @type {const} */ ('OpenBLAS'),
    env: process.env,
    signal: new AbortController().signal,
    log: join(work, 'log'),
    say: console.error,
  }
  const advice = 'install Python 3 with pip'
  const python = await findPython(context, null, { modules: ['pip'], advice })
  for (const { wheel, folder } of plan) {
    const unpacked = join(work, wheel.tag)
    await installWithPip(context, python.command, {
      what: `the wheel for ${wheel.tag}`,
      args: pipArguments(wheel, unpacked),
      advice: {},
    })
    console.log(await makePackage(context, wheel, unpacked, folder))
  }
  rmSync(work, { recursive: true })
}

/**
 * Makes the package of an unpacked wheel, and checks it.
 *
 * @param {import('../../packages/doctor/src/setup/tool.ts').ToolContext} context
 * @param {import('./package.ts').Wheel} wheel
 * @param {string} unpacked - its folder
 * @param {string} folder - for the package
 * @returns {Promise<string>} a sentence on the result
 */
async function makePackage(context, wheel, unpacked, folder) {
  const facts = join(
    unpacked,
    readdirSync(unpacked).find((name) => name.endsWith('.dist-info')),
  )
  // pip accepts the pinned hash of any wheel, so the file must also say for which system it is.
  if (!readFileSync(join(facts, 'WHEEL'), 'utf8').includes(`-${wheel.tag}\n`)) {
    throw new Error(`the wheel for ${wheel.tag} is for another system`)
  }
  const source = libraryIn(unpacked)
  const library = basename(source)
  const license = join(facts, 'licenses/LICENSE.txt')
  const manifest = manifestOf(wheel, shared, {
    openblas: OPENBLAS_VERSION,
    library,
    license: licenseOf(readFileSync(license, 'utf8')),
  })
  mkdirSync(folder, { recursive: true })
  copyFileSync(source, join(folder, library))
  copyFileSync(license, join(folder, 'LICENSE.txt'))
  writeFileSync(join(folder, 'README.md'), readmeOf(manifest))
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)

  const size = checkFiles(folder, ['LICENSE.txt', 'README.md', 'package.json', library])
  const made = `${folder}: ${size} MB, ${manifest.license}`
  if (!isThisSystem(wheel)) return `${made}; not tested, because it is for another system`
  const proof = await proveBlas(context, join(folder, library))
  if (typeof proof === 'string') throw new Error(`${folder} does not work: ${proof}`)
  return `${made}; its products are right (kernels ${proof.kernels})`
}

/**
 * Checks that npm would pack these files and no others.
 *
 * @param {string} folder
 * @param {readonly string[]} expected
 * @returns {string} the size of the tarball in MB
 */
function checkFiles(folder, expected) {
  const packed = execFileSync('npm', ['pack', '--dry-run', '--json'], {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [{ files, size }] = JSON.parse(packed)
  const found = files.map(({ path }) => path).sort()
  if (found.join() !== [...expected].sort().join()) {
    throw new Error(`npm would pack ${found.join(', ')} of ${folder}, not ${expected.join(', ')}`)
  }
  return (size / 1e6).toFixed(1)
}

/** @param {import('./package.ts').Wheel} wheel */
function isThisSystem({ os, cpu, libc }) {
  if (`${os}-${cpu}` !== thisSystem) return false
  return libc === undefined || (libc === 'glibc') === hasGlibc()
}

function hasGlibc() {
  Object.assign(process.report, { excludeNetwork: true })
  return process.report.getReport().header.glibcVersionRuntime !== undefined
}

try {
  await main(process.argv.slice(2))
} catch (error) {
  console.error(`blas-packages: ${error.message}`)
  process.exitCode = error.code === 'ERR_BENCH_USAGE' ? 2 : 1
}
