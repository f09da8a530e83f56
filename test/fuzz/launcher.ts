import { launchedEnvironment, readRankEnvironment, visibleText } from '@tsrun/core'
import { readStatusPage } from '@tsrun/distributed/record'
import { describeFinding, mergeFlight, failureText } from '../internals/launcher/report.ts'
import {
  fillTemplate,
  templateProblem,
  parseRankList,
  splitWords,
  flagTable,
  toJobOptions,
  completeSettings,
} from '../internals/launcher/args.ts'
import {
  unpackReport,
  findMismatch,
  judge,
  arrivalMessage,
  invitationOf,
  reportMessage,
  verdictMessage,
  parseControlMessage,
  chooseHosts,
  parseHostfile,
} from '../internals/launcher/nodes.ts'
import { parseFlightDump } from '../internals/distributed/record.ts'
import { type Target } from './campaign.ts'
import { fileOf, json, parsed, textOf } from './inputs.ts'

const errorReport = {
  ...{ kind: 'error', at: 5, name: 'Error', message: 'm', text: 'Error: m\n    at a.ts:1:1' },
  ...{ short: { text: 'Error: m', hidden: 3 }, code: 'ERR_TSR_TIMEOUT', peers: [1] },
  wait: { operation: 'allReduce', label: 'l', group: 'world', milliseconds: 5, peers: [1] },
  ...{ distance: 0, silent: true },
}
const outcome = {
  ...{ rank: 1, pid: 7, exitCode: 1, signal: null, startedAt: 1, endedAt: 2, stoppedAt: 2 },
  ...{ error: errorReport, exitedAt: 'a.ts:1', stderrTail: ['x'], heapExhausted: false },
  usage: { cpuSeconds: 1, peakBytes: 5 },
  place: {
    ...{ state: 'operation', operation: 'allReduce', group: 'world', sequence: 1 },
    ...{ milliseconds: 5, isSuspended: false },
  },
}
const flight = [
  {
    ...{ format: 'tsrun-flight', version: 1, rank: 0, worldSize: 2, pid: 7, host: 'h' },
    ...{ runId: 'r', restartCount: 0, reason: 'x', time: '2026-01-01', at: 5 },
    groups: [{ id: 0, name: 'world', ranks: [0, 1] }],
  },
  {
    ...{ number: 1, group: 0, sequence: 1, name: 'allReduce', operation: 'allReduce', bytes: 8 },
    ...{ posted: 1, started: 2, completed: 0, state: 'running', waitsFor: [1] },
  },
  {
    ...{ number: 2, group: 0, sequence: 1, name: 'send', operation: 'send/recv', peer: 1, tag: 0 },
    ...{ bytes: 8, posted: 1, started: 2, completed: 3, state: 'failed', error: 'ERR' },
  },
]

const report = {
  ...{ nodeRank: 0, outcomes: [outcome, { ...outcome, rank: 0, error: undefined }] },
  interruption: undefined,
  facts: { host: 'h', memory: { kills: 0, available: 5, limit: 9 }, logs: '/l' },
  flight: [{ header: flight[0], entries: flight.slice(1) }],
}
const nodes = [0, 1].map((nodeRank) => {
  return { id: `n${nodeRank}`, nodeRank, nproc: 1, host: 'h', address: '10.0.0.1', role: 'r' }
})
const plan = { runId: 'r', master: { host: '10.0.0.1', port: 29_500 }, nodes }
const registration = {
  ...{ nodeRank: 1, nnodes: 2, minNodes: 2, nproc: 1, host: 'h', pid: 7, identity: 'i' },
  ...{ address: '10.0.0.2', role: 'r', rdzvId: 'x', version: '1', script: '/a' },
  digest: 'abc',
}
const verdict = judge({ plan, reports: [report as never], lost: [], restarts: 0, maxRestarts: 1 })

const words = (text: string): string[] => splitWords(text) ?? []

/** Reads flags as the launcher does once the command line is split. */
function readFlags(values: unknown): void {
  const given = typeof values === 'object' && values !== null ? values : {}
  const flags = Object.fromEntries(
    Object.entries(given).filter(
      ([name, value]) => flagTable.some((flag) => flag.name === name) && typeof value === 'string',
    ),
  )
  const capacity = { cores: 4, gpus: () => 2, usesGpus: () => true }
  toJobOptions(completeSettings(flags, {}), ['train.ts', 'a'], capacity)
}

/** Only what a process can have as its environment. */
function environmentOf(input: Uint8Array): Record<string, string> {
  const value = parsed(input)
  const entries = typeof value === 'object' && value !== null ? Object.entries(value) : []
  return Object.fromEntries(
    entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  )
}

/** Whether codes of colours have the one for invisible text; after 38, 48 and 58, colours have numbers. */
function conceals(codes: string): boolean {
  return /(^|;)0*8(;|:|$)/.test(codes.replaceAll(/(^|;)0*[345]8;(0*5;\d*|0*2;\d*;\d*;\d*)/g, ''))
}

/** What the launcher reads: of its ranks, of other launchers, and of users. */
export const launcherTargets: readonly Target[] = [
  {
    name: 'control-message',
    seeds: [
      errorReport,
      { kind: 'exit', usage: { cpuSeconds: 1, peakBytes: 2 }, exitedAt: 'x' },
      { kind: 'checkpoint', step: 1, path: '/p' },
      { kind: 'stack', id: 1, stack: 'x' },
    ].map(json),
    isJson: true,
    run: (input) => {
      const message = parseControlMessage(textOf(input))
      if (message?.kind !== 'error') return
      const { at, ...rest } = { ...outcome, error: message, at: 0 }
      const reports = [{ ...report, outcomes: [rest] }] as never
      showVerdict(judge({ plan, reports, lost: [], restarts: at, maxRestarts: 0 }))
    },
  },
  {
    name: 'node-report',
    seeds: [json(report)],
    isJson: true,
    run: (input) => {
      const value = parsed(input)
      if (!reportMessage.is(value)) return
      const reports = [unpackReport(value)]
      showVerdict(judge({ plan, reports, lost: [], restarts: 0, maxRestarts: 0 }))
    },
  },
  {
    name: 'verdict',
    seeds: [json(verdict), json({ kind: 'change', reason: 'x' })],
    isJson: true,
    run: (input) => {
      const value = parsed(input)
      if (verdictMessage.is(value)) showVerdict(value)
    },
  },
  {
    name: 'arrival',
    seeds: [json({ id: 'n1', node: registration, storeAddress: '10.0.0.1' })],
    isJson: true,
    run: (input) => {
      const value = parsed(input)
      if (!arrivalMessage.is(value)) return
      const node = { ...value.node, nodeRank: value.node.nodeRank ?? 1 }
      findMismatch(node, { ...registration, nodeRank: 0 }, new Map([[1, node]]))
    },
  },
  {
    name: 'invitation',
    seeds: [json({ plan, attempt: 0 })],
    isJson: true,
    run: (input) => {
      const value = parsed(input)
      if (!invitationOf('n1').is(value)) return
      value.plan.nodes.find(({ id }) => id === 'n1')!.nodeRank.toFixed()
    },
  },
  {
    name: 'flight-record',
    seeds: [json(flight), json(flight.slice(0, 2))],
    isJson: true,
    encode: (value) =>
      Buffer.from((Array.isArray(value) ? value : [value]).map((line) => json(line)).join('\n')),
    run: (input) => {
      const dump = parseFlightDump(textOf(input))
      const header = { ...dump.header, rank: 1 }
      mergeFlight([dump, { ...dump, header }]).map(describeFinding)
    },
  },
  {
    name: 'flags',
    seeds: [
      { nproc: '4', nnodes: '1:2', 'rdzv-endpoint': 'h:29500', 'rdzv-conf': 'timeout=3' },
      { nproc: 'auto', redirects: '0:1,1:2', tee: '3', ranks: '0,2-3', 'log-prefix': '{rank}' },
      { 'signals-to-handle': 'SIGTERM', 'node-args': '--expose-gc "a b"', inspect: 'h:9229' },
      { 'master-addr': 'h', 'master-port': '1', 'port-range': '1-2', bind: 'core', stdin: 'all' },
      { 'job-timeout': '5', grace: '1', 'max-restarts': '2', 'host-timeout': '5', role: 'r' },
    ].map(json),
    isJson: true,
    run: (input) => {
      readFlags(parsed(input))
    },
  },
  {
    name: 'environment',
    seeds: [
      { RANK: '1', WORLD_SIZE: '4', LOCAL_RANK: '1', MASTER_ADDR: 'h', MASTER_PORT: '29500' },
      { SLURM_PROCID: '1', SLURM_NTASKS: '4', SLURM_LOCALID: '1', SLURM_NODELIST: 'h[1-3,5]' },
      { OMPI_COMM_WORLD_RANK: '1', OMPI_COMM_WORLD_SIZE: '2', OMPI_COMM_WORLD_LOCAL_RANK: '0' },
      { PMI_RANK: '1', PMI_SIZE: '2', MPI_LOCALRANKID: '0', SLURM_STEP_ID: '3' },
    ].map(json),
    isJson: true,
    run: (input) => {
      const env = environmentOf(input)
      readRankEnvironment({ ...env, ...launchedEnvironment(env) })
      completeSettings({}, env)
    },
  },
  {
    name: 'hostfile',
    seeds: ['h1 slots=4 user=me port=22\n# c\nh2\n', 'localhost slots=2\r\n[::1] slots=1'],
    run: (input) => {
      const hosts = parseHostfile(textOf(input), 'hosts')
      chooseHosts(hosts, { include: hosts[0]!.name })
    },
  },
  {
    name: 'log-prefix',
    seeds: ['[{rank}] {time} {{x}}', '${rank}:${local_rank} '],
    run: (input) => {
      const template = textOf(input)
      if (templateProblem(template) !== undefined) return
      const rank = { rank: 1, localRank: 1, worldSize: 2, role: 'r', node: 0, host: 'h', pid: 7 }
      const facts = { ...rank, generation: 0, startedAt: 0 }
      fillTemplate(template, { facts, stream: 'stdout', time: 5 })
    },
  },
  {
    name: 'terminal',
    seeds: [
      'a \x1b[8mhidden\x1b[0m\n',
      '\x1b[31;8;1mred\nnext',
      '\x1b[38;5;8mgrey \x1b[48;2;8;8;8mb\x1b[m',
      '\x1b[\x008mhidden \x1b[1\x7f;8mhidden',
      '\u009b8mhidden \x1b[\x1b[8m8mhidden \x1b\x1b[8m[8mhidden',
      'shown\x1b[',
    ],
    run: (input) => {
      const text = textOf(input)
      const [plain, coloured] = [visibleText(text), visibleText(text, true)]
      const left = coloured.replace(/\x1b\[([\d;:]*)m/g, (_, codes: string) => {
        if (conceals(codes)) throw new TypeError('it conceals what follows')
        return ''
      })
      if (/[\0-\x08\x0b-\x1f\x7f-\x9f]/.test(plain + left))
        throw new TypeError('a control character')
    },
  },
  {
    name: 'lists',
    seeds: ['0,2-3', '"a b" c\\ d', "it's"],
    run: (input) => [parseRankList(textOf(input)), words(textOf(input))],
  },
  {
    name: 'status-page',
    seeds: [new Uint8Array(4096), new Uint8Array(200)],
    run: (input) => readStatusPage(fileOf('status', input)),
  },
]

/** Makes the text of a failure, which the launcher prints. */
function showVerdict(judged: ReturnType<typeof judge>): void {
  if (judged.kind === 'failure') failureText(judged.failure, true)
}
