import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { operations, plan } from '../collectives/plan.mjs'
import { measureAll } from '../collectives/rounds.mjs'
import { findPeers, nameOf, peerNames, tsrunSystems } from '../collectives/systems.mjs'
import { readInteger, readList, splitList, UsageError } from '../command-line.mjs'
import { describeMachine, withFolder } from '../programs.mjs'
import { parseSize } from '../figures.mjs'
import { drawCurves } from './curves.mjs'
import { pictureOf, updatePage } from './page.mjs'
import { measureSections, sectionNames } from './sections.mjs'

const docs = fileURLToPath(new URL('../../../docs/', import.meta.url))
const manifest = new URL('../../../packages/distributed/package.json', import.meta.url)
const sizes = '1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB'

/** @type {import('../command-line.mjs').Command} */
export const report = {
  summary: 'measures, and writes the section of this CPU in docs/benchmarks.md',
  options: {
    ranks: { value: '<n>', default: '4', description: 'processes, all on this host' },
    peers: {
      value: '<list>',
      default: peerNames.join(','),
      description: 'those that are not installed are skipped',
    },
    ops: { value: '<list>', default: operations.join(','), description: 'operations' },
    sizes: { value: '<list>', default: sizes, description: 'of the full buffer' },
    engine: { value: '<list>', default: 'worker,inline', description: 'ours' },
    also: { value: '<list>', default: sectionNames.join(','), description: 'further figures' },
    runs: {
      value: '<n>',
      default: '3',
      description: 'rounds at most; the systems take turns in each',
    },
    seconds: {
      value: '<n>',
      default: '420',
      description: 'of the collectives: no round starts that would end later',
    },
    output: {
      value: '<folder>',
      default: 'docs',
      description: 'where to write the page and images/',
    },
  },
  run: (values) => withFolder((folder) => run(values, folder)),
}

/**
 * @param {import('../command-line.mjs').Values} values
 * @param {string} folder - for what peers compile
 */
async function run(values, folder) {
  const ops = readList('ops', values['ops'], operations)
  const bytes = splitList(values['sizes']).map(parseSize)
  const engines = readList('engine', values['engine'], /** @type {const} */ (['worker', 'inline']))
  if ([ops, bytes, engines].some((list) => list.length === 0)) {
    throw new UsageError('--ops, --sizes or --engine is empty')
  }
  const ranks = readInteger('ranks', values['ranks'], 2, 64)
  const runs = readInteger('runs', values['runs'], 1, 100)
  const seconds = readInteger('seconds', values['seconds'], 1, 86_400)
  const also = readList('also', values['also'], sectionNames)
  const peers = await findPeers(readList('peers', values['peers'], peerNames), folder)

  const further = await measureSections(also, folder)
  const begun = performance.now()
  const { rows, rounds, failures } = await measureAll({
    systems: [...tsrunSystems(['shared-memory', 'tcp'], engines), ...peers.systems],
    steps: plan(ops, bytes, ranks, repetitions),
    ranks,
    runs,
    goesOn: (round) => {
      const now = performance.now()
      const each = round === 1 ? 0 : (now - begun) / (round - 1)
      return round === 1 || now + each - begun <= seconds * 1000
    },
  })

  const machine = describeMachine()
  const output = values['output'] === 'docs' ? docs : (values['output'] ?? docs)
  const file = join(output, 'benchmarks.md')
  const before = await readFile(file, 'utf8').catch(() => '')
  const page = updatePage(before, {
    machine,
    versions: { tsrun: await ownVersion(), ...peers.versions },
    date: new Date().toISOString().slice(0, 10),
    command: ['npm run bench -- report', ...given(values)].join(' '),
    ranks,
    rounds,
    rows,
    skipped: peers.skipped,
    sections: further.sections,
  })
  const images = join(output, 'images')
  await mkdir(images, { recursive: true })
  await writeFile(file, page)
  for (const op of ops) {
    const picture = drawCurves(
      `${op}, ${ranks} ranks`,
      seriesOf(rows.filter((row) => row.op === op)),
    )
    await writeFile(join(images, pictureOf(op, machine)), picture)
  }
  console.error(`written: ${file}`)
  return failures + further.failures === 0 ? 0 : 1
}

/** @param {readonly import('../collectives/rounds.mjs').Row[]} rows - of one operation */
function seriesOf(rows) {
  return [...new Set(rows.map(nameOf))].map((name) => ({
    name,
    isPeer: !name.startsWith('tsrun'),
    points: rows
      .filter((row) => nameOf(row) === name)
      .map(({ bytes, p50Us, busbwGBs }) => ({ bytes, us: p50Us, busbw: busbwGBs }))
      .toSorted((a, b) => a.bytes - b.bytes),
  }))
}

/**
 * Fewer repetitions than those of `collectives`, because there are many sizes.
 *
 * @param {number} bytes
 */
function repetitions(bytes) {
  if (bytes <= 64 * 2 ** 10) return { warmUps: 50, repeats: 100 }
  if (bytes <= 4 * 2 ** 20) return { warmUps: 10, repeats: 20 }
  return { warmUps: 1, repeats: 5 }
}

/**
 * The options that differ from their defaults, except for the output.
 *
 * @param {import('../command-line.mjs').Values} values
 */
function given(values) {
  return Object.entries(report.options)
    .filter(([name, option]) => name !== 'output' && values[name] !== option.default)
    .map(([name]) => `--${name} ${values[name]}`)
}

async function ownVersion() {
  return /** @type {{ version: string }} */ (JSON.parse(await readFile(manifest, 'utf8'))).version
}
