import { formatBytes, formatTable } from '@tsrun/core'
import { version } from '@tsrun/launcher/host'
import { isLoopback } from '@tsrun/store'
import type { Link } from './agent.ts'
import type { Survey } from './survey.ts'

/** A problem that prevents a job (`FAILS`), or a note. */
export interface Remark {
  readonly state: 'FAILS' | 'note'
  readonly text: string
  readonly advice?: string
}

/** Formats the report for a terminal. */
export function surveyText(survey: Survey, remarks: readonly Remark[]): string {
  const lines = [
    `tsrun ${version}, ${survey.hosts.length} hosts`,
    '',
    ...hostTable(survey),
    ...linkTables(survey),
    '',
    ...remarks.flatMap(({ state, text, advice }) => [
      `${state.padEnd(7)}${text}`,
      ...(advice === undefined ? [] : [`       -> ${advice}`]),
    ]),
    canRun(remarks)
      ? 'A job can run on these hosts.'
      : 'A job cannot run on all of these hosts: see FAILS above.',
  ]
  return `${lines.join('\n')}\n`
}

export function canRun(remarks: readonly Remark[]): boolean {
  return remarks.every(({ state }) => state !== 'FAILS')
}

function hostTable(survey: Survey): string[] {
  const titles = ['', 'host', 'address', 'Node', 'cores', '/dev/shm', 'clock']
  const clocks = survey.hosts.map((_, to) =>
    to === 0 ? '0' : formatClock(linkBetween(survey, 0, to)),
  )
  const rows = survey.hosts.map((finding, i) => {
    const number = String(i)
    if (!('facts' in finding)) return [number, finding.name, ...titles.slice(2).map(() => '–')]
    const { address, node, cores, shm } = finding.facts
    return [
      number,
      finding.name,
      address ?? '–',
      node,
      String(cores),
      shm === undefined ? '–' : formatBytes(shm),
      clocks[i]!,
    ]
  })
  return formatTable([titles, ...rows])
}

function linkBetween(survey: Survey, from: number, to: number): Link | undefined {
  const found = survey.links.find((one) => one.from === from && one.to === to)
  return found !== undefined && 'link' in found ? found.link : undefined
}

function formatClock(link: Link | undefined): string {
  if (link === undefined) return '–'
  const { ahead, doubt } = link
  if (Math.abs(ahead) <= doubt) return '0'
  return `${ahead < 0 ? '' : '+'}${ahead.toFixed(1)} ms`
}

function linkTables(survey: Survey): string[] {
  if (survey.links.length === 0) return []
  return [
    '',
    'Round trip in us, from the host of the line to that of the column:',
    ...matrix(survey, ({ roundTrip }) => String(Math.round(roundTrip * 1000))),
    '',
    'Bandwidth of one connection in GB/s, from the host of the line:',
    ...matrix(survey, ({ bandwidth = 0 }) => (bandwidth / 1e9).toFixed(2)),
  ]
}

function matrix(survey: Survey, cell: (link: Link) => string): string[] {
  const indexes = [...survey.hosts.keys()]
  const rows = indexes.map((from) => [
    String(from),
    ...indexes.map((to) => {
      if (from === to) return '·'
      const link = linkBetween(survey, from, to)
      if (link !== undefined) return cell(link)
      return survey.links.some((one) => one.from === from && one.to === to) ? 'FAILS' : '–'
    }),
  ])
  return formatTable([['', ...indexes.map(String)], ...rows], 'right')
}

/** Clock difference in milliseconds above which times in logs are misleading. */
const LARGEST_OFFSET = 50
/** Minimum limit on open files. A rank needs a file for each other rank, and some for its script. */
const FEWEST_FILES = 1024

/** The problems and notes about the surveyed hosts. */
export function remarksOf(survey: Survey): Remark[] {
  const remarks = [
    ...hostRemarks(survey),
    ...storeRemarks(survey),
    ...failedLinks(survey),
    ...wrongClocks(survey),
  ]
  return remarks.toSorted((a, b) => a.state.localeCompare(b.state))
}

function hostRemarks(survey: Survey): Remark[] {
  return survey.hosts.flatMap((finding, index): Remark[] => {
    const { name } = finding
    if (!('facts' in finding)) return [{ state: 'FAILS', text: `${name}: ${finding.problem}` }]
    const { address, problem, sharing, openFiles } = finding.facts
    const remarks: Remark[] = []
    if (problem !== undefined) {
      const first = survey.hosts[0]!.name
      const advice = `Its ranks have no address: make ${first} known on ${name}, or give --iface.`
      remarks.push({ state: 'FAILS', text: `${name}: ${first}: ${problem}`, advice })
    }
    if (index > 0 && address !== undefined && isLoopback(address)) {
      const text = `${name}: its ranks would listen at ${address}, which others cannot reach`
      const advice = `There, ${survey.hosts[0]!.name} leads to loopback: mend /etc/hosts, or give --iface.`
      remarks.push({ state: 'FAILS', text, advice })
    }
    if (sharing !== undefined) {
      const text = `${name}: no shared memory among its ranks: ${sharing}`
      remarks.push({ state: 'note', text, advice: 'tsrun doctor on that host says more.' })
    }
    if (openFiles !== undefined && openFiles < FEWEST_FILES) {
      const text = `${name}: only ${openFiles} open files for a process`
      remarks.push({
        state: 'note',
        text,
        advice: 'ulimit -n 65536, or LimitNOFILE of the service.',
      })
    }
    return remarks
  })
}

function storeRemarks({ hosts, store, port }: Survey): Remark[] {
  const first = hosts[0]!.name
  return store.flatMap((problem, i): Remark[] => {
    if (problem === undefined) return []
    if (i === 0) {
      const text = `${first}: port ${port} of the store: ${problem}`
      return [{ state: 'note', text, advice: 'If no job is running there, give another --port.' }]
    }
    const text = `${hosts[i]!.name} does not reach the store at ${first}:${port}: ${problem}`
    return [
      { state: 'FAILS', text, advice: `Open port ${port} of ${first}, or give another --port.` },
    ]
  })
}

function failedLinks({ hosts, links }: Survey): Remark[] {
  return links.flatMap((one): Remark[] => {
    if (!('problem' in one)) return []
    const [from, to] = [hosts[one.from]!.name, hosts[one.to]!.name]
    const text = `${from} does not reach ${to} at ${one.at}: ${one.problem}`
    const advice = `Open the ports of the ranks on ${to}; --port-range limits them.`
    return [{ state: 'FAILS', text, advice }]
  })
}

function wrongClocks(survey: Survey): Remark[] {
  const remarks: Remark[] = []
  for (const [to, { name }] of survey.hosts.entries()) {
    const link = to === 0 ? undefined : linkBetween(survey, 0, to)
    if (link === undefined || Math.abs(link.ahead) < LARGEST_OFFSET) continue
    const text = `the clock of ${name} differs by ${formatClock(link)} from that of ${survey.hosts[0]!.name}`
    const advice = 'Times in logs and traces do not agree: run an NTP client, as chrony.'
    remarks.push({ state: 'note', text, advice })
  }
  return remarks
}
