import { formatBytes } from '@tsrun/core'
import { nameOf } from '../collectives/systems.mjs'
import { markdownTable, significant } from '../figures.mjs'

/**
 * @typedef {import('../collectives/rounds.mjs').Row} Row
 *
 * @typedef {object} Report
 * @property {import('../programs.mjs').Machine} machine
 * @property {Readonly<Record<string, string>>} versions - by system
 * @property {string} date - as in 2026-01-31
 * @property {string} command - that wrote the page
 * @property {number} ranks
 * @property {number} rounds
 * @property {readonly Row[]} rows
 * @property {readonly string[]} skipped - peers that are not installed
 * @property {readonly { title: string, text: string }[]} sections - further measurements
 */

/**
 * The page with the results of this machine: those of machines with another CPU stay as they are.
 *
 * @param {string} before - the page as it was; empty if there is none
 * @param {Report} report
 * @returns {string} Markdown
 */
export function updatePage(before, report) {
  const title = titleOf(report.machine)
  const others = [...sectionsOf(before)].filter(([name]) => name !== title)
  const sections = new Map([...others, [title, writeSection(report)]])
  const titles = [...sections.keys()].toSorted()
  const parts = [
    '# Benchmarks',
    'Written by `npm run bench -- report`, which replaces the section of the CPU that it runs on; do not edit. Absolute times depend on the machine and on its load. Only ratios of systems that were measured in turn, in one run, say something about other machines, and those with another CPU may have other ratios.',
    titles.map((name) => `- [${name}](#${anchorOf(name)})`).join('\n'),
    METHOD,
    ...titles.map((name) => `## ${name}\n\n${sections.get(name)}`),
  ]
  return `${parts.join('\n\n')}\n`
}

const METHOD = `## Method

The operations sum float32 values over ranks on one host. Each rank has one thread (ours also has that of the engine, unless it is inline) and is not bound to a core. Every system checks its result, warms up, and then repeats a barrier and the operation; the time of a repetition is that of the slowest rank. The tables show the median of the repetitions, and the median of those over the rounds. In each round, the systems take turns in new processes. Bus bandwidth is bytes per second times the share of the buffer that the busiest link carries ([nccl-tests](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)). [scripts/bench](../scripts/bench/README.md) has the details.

All times are in microseconds. The last columns of a table compare our fastest system over each medium with each peer over the same medium; below 1, ours is faster.`

/** The sections of a page by their titles, without that of the method. */
function sectionsOf(/** @type {string} */ page) {
  const found = page.trimEnd().split(/^## /m).slice(1)
  return new Map(
    found
      .map((section) => {
        const end = section.indexOf('\n')
        return /** @type {const} */ ([section.slice(0, end), section.slice(end).trim()])
      })
      .filter(([title]) => title !== 'Method'),
  )
}

/** @param {import('../programs.mjs').Machine} machine */
function titleOf({ cpu, cores }) {
  // Intel(R) Xeon(R) Processor @ 2.80GHz: Intel Xeon 2.80GHz
  const name = cpu.replaceAll(/\((R|TM)\)| (Processor|CPU)\b| @/g, '')
  return `${name}, ${cores} ${cores === 1 ? 'core' : 'cores'}`
}

/** @param {string} title */
function anchorOf(title) {
  const kept = title.toLowerCase().replaceAll(/[^a-z0-9 _-]/g, '')
  return kept.replaceAll(' ', '-')
}

/**
 * The results of one machine, with one table and one picture for each operation.
 *
 * @param {Report} report
 */
function writeSection({ rows, sections, skipped, ...report }) {
  const operations = [...new Set(rows.map(({ op }) => op))]
  const parts = [
    facts(report),
    ...skipped.map((peer) => `Not measured because it is not installed: ${peer}.`),
    '### Collectives',
    ...operations.map((op) => section(op, rows, report.machine)),
    ...sections.flatMap(({ title, text }) => [`### ${title}`, text]),
  ]
  return parts.join('\n\n')
}

/** @param {Omit<Report, 'rows' | 'sections' | 'skipped'>} report */
function facts({ machine, versions, ranks, rounds, date, command }) {
  const { cores, memoryGiB, system, node } = machine
  const crowded = ranks > cores ? `, which share ${cores} ${cores === 1 ? 'core' : 'cores'}` : ''
  return markdownTable(
    ['what', 'which'],
    [
      ['date', date],
      ['command', `\`${command}\``],
      ['ranks', `${ranks}${crowded}`],
      ['rounds', String(rounds)],
      ['memory', `${memoryGiB} GiB`],
      ['system', system],
      ['Node.js', node],
      ...Object.entries(versions),
    ],
  )
}

/**
 * @param {string} op
 * @param {readonly Row[]} rows
 * @param {import('../programs.mjs').Machine} machine
 */
function section(op, rows, machine) {
  const own = rows.filter((row) => row.op === op)
  const names = [...new Set(own.map(nameOf))]
  const sizes = [...new Set(own.map(({ bytes }) => bytes))].toSorted((a, b) => a - b)
  const pairs = comparisons(own)
  const table = markdownTable(
    ['bytes', ...names, ...pairs.map(({ heading }) => heading)],
    sizes.map((bytes) => {
      const here = own.filter((row) => row.bytes === bytes)
      const times = names.map((name) => here.find((row) => nameOf(row) === name)?.p50Us ?? '')
      return [formatBytes(bytes), ...times, ...pairs.map(({ ratio }) => ratio(here))]
    }),
  )
  return `#### ${op}\n\n![${op}: time and bus bandwidth by size](images/${pictureOf(op, machine)})\n\n${table}`
}

/**
 * Compares shared memory with shared memory, and sockets with sockets. gloo has only sockets and is
 * compared with both, because it is what a user would run on one host.
 *
 * @param {readonly Row[]} rows
 */
function comparisons(rows) {
  const peers = new Map(
    rows.filter((row) => row.system !== 'tsrun').map((row) => [nameOf(row), row]),
  )
  return ['shared-memory', 'tcp'].flatMap((transport) =>
    [...peers]
      .filter(([, peer]) => peer.transport === transport || peer.transport === 'gloo')
      .map(([name]) => ({
        heading: `${transport} / ${name}`,
        ratio: (/** @type {readonly Row[]} */ here) => {
          const ours = here.filter((row) => row.system === 'tsrun' && row.transport === transport)
          const peer = here.find((row) => nameOf(row) === name)
          if (ours.length === 0 || peer === undefined) return ''
          return significant(Math.min(...ours.map((row) => row.p50Us)) / peer.p50Us, 2)
        },
      })),
  )
}

/**
 * @param {string} op
 * @param {import('../programs.mjs').Machine} machine
 */
export function pictureOf(op, machine) {
  const cpu = anchorOf(titleOf(machine)).replaceAll(/-+/g, '-')
  return `bench-${cpu}-${op.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}.svg`
}
