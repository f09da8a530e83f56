import { nameOf } from '../collectives/systems.mjs'
import { formatSize, formatTable, significant } from '../figures.mjs'

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
 * The page with one table and one picture an operation.
 *
 * @param {Report} report
 * @returns {string} Markdown
 */
export function writePage({ rows, sections, skipped, ...report }) {
  const operations = [...new Set(rows.map(({ op }) => op))]
  const parts = [
    '# Benchmarks',
    `Written by \`${report.command}\` on ${report.date}; do not edit. Absolute times belong to the machine and to its mood; what travels are ratios of systems that were measured in turn, in one run.`,
    facts(report),
    ...skipped.map((peer) => `Left out, as it is not installed: ${peer}.`),
    '## Method',
    `float32, sum, ${report.ranks} ranks on one host, one thread a rank (ours has the engine's too, unless inline), no binding to cores. Every system checks its result, warms up, and then repeats: barrier, operation; the time of a repetition is that of the slowest rank. The tables show the median of the repetitions, and of that the median over ${report.rounds} rounds, each with new processes and the systems in turn. Bus bandwidth is bytes a second times the share of the buffer that the busiest link carries ([nccl-tests](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)). More: [scripts/bench](../scripts/bench/README.md).`,
    '## Collectives',
    'Microseconds. The last columns compare the fastest of ours over each medium with each peer over the same: below 1 is faster.',
    ...operations.map((op) => section(op, rows)),
    ...sections.flatMap(({ title, text }) => [`## ${title}`, text]),
  ]
  return `${parts.join('\n\n')}\n`
}

/** @param {Pick<Report, 'machine' | 'versions' | 'ranks'>} report */
function facts({ machine, versions, ranks }) {
  const { cpu, cores, memoryGiB, system, node } = machine
  const crowded = ranks > cores ? `: ${ranks} ranks share them` : ''
  return formatTable(
    ['what', 'which'],
    [
      ['CPU', `${cpu}, ${cores} ${cores === 1 ? 'core' : 'cores'}${crowded}`],
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
 */
function section(op, rows) {
  const own = rows.filter((row) => row.op === op)
  const names = [...new Set(own.map(nameOf))]
  const sizes = [...new Set(own.map(({ bytes }) => bytes))].toSorted((a, b) => a - b)
  const pairs = comparisons(own)
  const table = formatTable(
    ['bytes', ...names, ...pairs.map(({ heading }) => heading)],
    sizes.map((bytes) => {
      const here = own.filter((row) => row.bytes === bytes)
      const times = names.map((name) => here.find((row) => nameOf(row) === name)?.p50Us ?? '')
      return [formatSize(bytes), ...times, ...pairs.map(({ ratio }) => ratio(here))]
    }),
  )
  return `### ${op}\n\n![${op}: time and bus bandwidth by size](images/${pictureOf(op)})\n\n${table}`
}

/**
 * Ours over shared memory with the peers', ours over sockets with theirs; gloo has sockets only and
 * is what a user would run on one host.
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

/** @param {string} op */
export function pictureOf(op) {
  return `bench-${op.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}.svg`
}
