// Pins what `tsrun setup` downloads: writes the lock files of its npm packages, and the hashes of
// the wheels for pip, into packages/doctor/src/setup/pins. The versions are those of pins.ts. It needs npm
// and a Python whose pip can report what it would install (23 or later): `npm run pins [-- PYTHON]`.
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  npmManifest,
  OPENBLAS_VERSION,
  PINNED_MACHINES,
  PINNED_PYTHONS,
  TENSORFLOW_VERSION,
} from '../packages/doctor/src/setup/pins.ts'
import { wheels } from './blas-packages/package.ts'

const [python = 'python3'] = process.argv.slice(2)
const pins = fileURLToPath(new URL('../packages/doctor/src/setup/pins/', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'tsrun-pins-'))
mkdirSync(pins, { recursive: true })
try {
  for (const name of /** @type {const} */ (['tfjs-node', 'tfjs-node-gpu'])) lockPackages(name)
  // There is no wheel of tensorflow-cpu for aarch64, where tensorflow itself is for the CPU.
  write('tensorflow-cpu.txt', [
    ...wheelsOf(`tensorflow-cpu==${TENSORFLOW_VERSION}`, ['x86_64']),
    ...wheelsOf(`tensorflow==${TENSORFLOW_VERSION}`, ['aarch64']),
  ])
  write(
    'tensorflow-gpu.txt',
    wheelsOf(`tensorflow[and-cuda]==${TENSORFLOW_VERSION}`, PINNED_MACHINES),
  )
  const openblas = `scipy-openblas32==${OPENBLAS_VERSION}`
  const hashes = wheels.flatMap(({ tag }) =>
    resolve(openblas, [tag], PINNED_PYTHONS[0]).map(hashOf),
  )
  write('openblas.txt', [withHashes(openblas, hashes)], `Wheels for ${wheels.length} systems`)
} finally {
  rmSync(folder, { recursive: true })
}

/** @param {'tfjs-node' | 'tfjs-node-gpu'} name */
function lockPackages(name) {
  writeFileSync(join(folder, 'package.json'), JSON.stringify(npmManifest(`@tensorflow/${name}`)))
  const flags = ['--package-lock-only', '--omit-lockfile-registry-resolved', '--ignore-scripts']
  execFileSync('npm', ['install', ...flags], { cwd: folder, stdio: 'inherit' })
  copyFileSync(join(folder, 'package-lock.json'), join(pins, `${name}.lock.json`))
  rmSync(join(folder, 'package-lock.json'))
}

/**
 * The wheels of TensorFlow and of CUDA that pip would install, as lines of a file of requirements.
 *
 * @param {string} requirement
 * @param {readonly string[]} machines
 */
function wheelsOf(requirement, machines) {
  /** @type {Map<string, { hashes: Set<string>, machines: Set<string> }>} */
  const found = new Map()
  for (const machine of machines) {
    for (const version of PINNED_PYTHONS) {
      for (const download of resolve(requirement, manylinux(machine), version)) {
        const { metadata } = download
        // The Python part of TensorFlow, which needs the rest, is not used.
        const name = metadata.name.replaceAll('_', '-')
        if (!/^(tensorflow(-cpu)?|nvidia-.*)$/.test(name)) continue
        const line = `${name}==${metadata.version}`
        const entry = found.get(line) ?? { hashes: new Set(), machines: new Set() }
        entry.hashes.add(hashOf(download))
        entry.machines.add(machine)
        found.set(line, entry)
      }
    }
  }
  return [...found].sort().map(([line, { hashes, machines: on }]) => {
    const marker =
      on.size === PINNED_MACHINES.length ? '' : ` ; platform_machine == "${[...on].join()}"`
    return withHashes(`${line}${marker}`, hashes)
  })
}

/**
 * @param {string} requirement
 * @param {Iterable<string>} hashes
 */
function withHashes(requirement, hashes) {
  return [requirement, ...[...hashes].sort().map((hash) => `--hash=sha256:${hash}`)].join(
    ' \\\n    ',
  )
}

/** @param {string} machine */
function manylinux(machine) {
  return ['_2_27', '_2_17', '_2_12', '2014', '2010'].map((tag) => `manylinux${tag}_${machine}`)
}

/** @param {Download} download */
function hashOf({ download_info: { archive_info: info } }) {
  return info.hashes.sha256
}

/**
 * @typedef {{ metadata: { name: string, version: string }, download_info: { archive_info: { hashes: { sha256: string } } } }} Download
 */

/**
 * @param {string} requirement
 * @param {readonly string[]} platforms
 * @param {string} version - of Python
 * @returns {Download[]}
 */
function resolve(requirement, platforms, version) {
  const targets = platforms.flatMap((platform) => ['--platform', platform])
  const text = execFileSync(
    python,
    [
      ...['-m', 'pip', 'install', '--dry-run', '--quiet', '--ignore-installed', '--report', '-'],
      ...['--only-binary', ':all:', '--target', folder, '--implementation', 'cp'],
      ...['--python-version', version, ...targets, requirement],
    ],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] },
  )
  return JSON.parse(text).install
}

/**
 * @param {string} name
 * @param {string[]} lines
 * @param {string} [what] - for which the wheels are
 */
function write(
  name,
  lines,
  what = `CPython ${PINNED_PYTHONS[0]} to ${String(PINNED_PYTHONS.at(-1))} on Linux, ${PINNED_MACHINES.join(' and ')}`,
) {
  const text = `# Written by \`npm run pins\`. ${what}.\n${lines.join('\n')}\n`
  writeFileSync(join(pins, name), text)
}
