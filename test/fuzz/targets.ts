import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isNativeError } from 'node:util/types'
import {
  clientHandshake,
  decode,
  encode,
  HELLO_BYTES,
  launchedEnvironment,
  PROOF_BYTES,
  readRankEnvironment,
  reviveTsrError,
  serverHandshake,
  tsrError,
  type SerializedTsrError,
} from '@tsrun/core'
import { describeFinding, mergeFlight, readStatusPage } from '@tsrun/telemetry'
import { readTuning } from '../../packages/distributed/src/algorithms/tuning-file.ts'
import { decodeNotice, encodeNotice } from '../../packages/distributed/src/diagnosis/notices.ts'
import {
  decodeFault,
  encodeFault,
  faultError,
} from '../../packages/distributed/src/engine/fault.ts'
import {
  HEADER_BYTES,
  frameKinds,
  writeHeader,
} from '../../packages/distributed/src/engine/messages/frame.ts'
import { createMemory, heapOf, type Heap } from '../../packages/distributed/src/arena/heap.ts'
import { CLOSED, type Transport } from '../../packages/distributed/src/transports/transport.ts'
import { fillTemplate, templateProblem } from '../../packages/launcher/src/args/log-prefix.ts'
import { parseRankList } from '../../packages/launcher/src/args/output-options.ts'
import { splitWords } from '../../packages/launcher/src/args/rank-options.ts'
import { flagTable } from '../../packages/launcher/src/args/flags.ts'
import { toJobOptions } from '../../packages/launcher/src/args/job-options.ts'
import { completeSettings } from '../../packages/launcher/src/args/settings.ts'
import { unpackReport } from '../../packages/launcher/src/nodes/messages.ts'
import { findMismatch } from '../../packages/launcher/src/nodes/registration.ts'
import {
  invitationOf,
  isArrival,
  isReport,
  isVerdict,
} from '../../packages/launcher/src/nodes/shapes.ts'
import { judge } from '../../packages/launcher/src/nodes/verdict.ts'
import { parseControlMessage } from '../../packages/launcher/src/processes/control-messages.ts'
import { chooseHosts, parseHostfile } from '../../packages/launcher/src/remote/hostfile.ts'
import { failureText } from '../../packages/launcher/src/report/failure-text.ts'
import { Calls } from '../../packages/store/src/calls.ts'
import { StoreData } from '../../packages/store/src/data.ts'
import { LinkedStore } from '../../packages/store/src/linked-store.ts'
import { decodeClientMessage, decodeServerMessage } from '../../packages/store/src/protocol.ts'
import { Session } from '../../packages/store/src/session.ts'
import { parseFlightDump } from '../../packages/telemetry/src/flight-records.ts'
import { decodeContents, encodeContents } from '../../packages/training/src/checkpoint/contents.ts'
import { openModelFiles } from '../../packages/training/src/checkpoint/model-files.ts'
import { parseHeader } from '../../packages/training/src/checkpoint/safetensors/header.ts'
import { readGPT2Config } from '../../packages/training/src/models/gpt2-config.ts'
import { parseActions } from '../../packages/training/src/parallel/pipeline/schedule/actions.ts'
import { SteppedWorld } from '../distributed/support/stepped-world.ts'
import { isRaw, type Target } from './campaign.ts'

const folder = mkdtempSync(join(tmpdir(), 'tsrun-fuzz-'))
process.once('exit', () => {
  rmSync(folder, { recursive: true, force: true })
})

function fileOf(name: string, bytes: Uint8Array): string {
  const path = join(folder, name)
  writeFileSync(path, bytes)
  return path
}

const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString()
const json = (value: unknown): string => JSON.stringify(value)

/** A value of msgpack, from that of a JSON; `$bytes` stands for bytes. */
function packed(value: unknown): Uint8Array {
  const convert = (one: unknown): unknown => {
    if (Array.isArray(one)) return one.map(convert)
    if (typeof one !== 'object' || one === null) return one
    if ('$bytes' in one && typeof one.$bytes === 'string') return Buffer.from(one.$bytes)
    return Object.fromEntries(Object.entries(one).map(([name, field]) => [name, convert(field)]))
  }
  return encode(convert(value))
}

const bytes = { $bytes: '12' }
const storeRequests = [
  { op: 'set', key: 'k', value: bytes, timeToLive: 5 },
  { op: 'set', key: 'k', value: bytes, whileConnected: true },
  { op: 'get', key: 'k' },
  { op: 'multiGet', keys: ['k', 'l'] },
  { op: 'wait', keys: ['k', 'l'] },
  { op: 'check', keys: ['k'] },
  { op: 'add', key: 'k', amount: 3 },
  { op: 'compareSet', key: 'k', expected: bytes, desired: bytes },
  { op: 'append', key: 'k', value: bytes },
  { op: 'delete', key: 'k' },
  { op: 'list', key: '' },
  { op: 'queuePush', key: 'q', value: bytes },
  { op: 'queuePop', key: 'q' },
  { op: 'queueLength', key: 'q' },
  { op: 'watch', key: 'k' },
  { op: 'unwatch', watch: 1 },
  { op: 'cancel' },
].map((request) => json({ id: 1, ...request }))

const storeAnswers = [
  { id: 1, result: null },
  { id: 1, result: { success: true, value: bytes } },
  { id: 1, result: ['a', 'b'] },
  { id: 2, result: bytes },
  { id: 3, result: [bytes, bytes] },
  { id: 4, changed: true, value: bytes },
  { id: 2, missing: ['k'] },
  { id: 3, code: 'ERR_TSR_STORE_LIMIT', facts: { what: 'The value', bytes: 9, limit: 8 } },
].map(json)

async function answerClient(input: Uint8Array): Promise<void> {
  const calls = new Calls(
    {
      endpoint: 'fuzz',
      send: () => undefined,
      setBusy: () => undefined,
      close: () => Promise.resolve(),
    },
    60_000,
  )
  const store = new LinkedStore(calls)
  const asked = [
    store.compareSet('k', 'a', 'b'),
    store.get('k'),
    store.multiGet(['k', 'l']),
    store.watch('k', () => undefined),
    store.list(),
    store.check(['k']),
    store.add('k', 1),
    store.append('k', 'v'),
    store.queueLength('k'),
    store.set('k', 'v'),
  ].map(async (call): Promise<unknown> => {
    try {
      return await call
    } catch (error) {
      return error
    }
  })
  try {
    calls.receive(decodeServerMessage(input))
  } finally {
    calls.lost('the end')
    for (const error of await Promise.all(asked)) {
      if (isNativeError(error) && isRaw(error)) throw error
    }
  }
}

function serve(input: Uint8Array): void {
  const data = new StoreData()
  const session = new Session(data, () => undefined)
  data.set('k', Buffer.from('12'))
  try {
    // twice, as the second one meets what the first one has left
    session.handle(decodeClientMessage(input))
    session.handle(decodeClientMessage(input))
  } finally {
    session.close()
    data.clear()
  }
}

const token = 'ab'.repeat(32)
const hello = serverHandshake(token, 'fuzz').answer(clientHandshake(token, 'fuzz').hello)!

/** A peer that sends these bytes, and takes everything. */
class Peer implements Transport {
  readonly name = 'fuzz'
  readonly #heap: Heap
  readonly #input: Uint8Array
  #read = 0
  #closed = false

  constructor(heap: Heap, input: Uint8Array) {
    this.#heap = heap
    this.#input = input
  }

  trySend(_peer: number, _at: number, length: number): number {
    return this.#closed ? CLOSED : length
  }

  tryReceive(_peer: number, at: number, length: number): number {
    const part = this.#input.subarray(this.#read, this.#read + length)
    if (this.#closed || part.length === 0) return CLOSED
    this.#heap.bytes.set(part, at)
    this.#read += part.length
    return part.length
  }

  wantSend(): void {
    // nothing is ever full
  }

  closeReason(): string {
    return 'the input is over'
  }

  closePeer(): void {
    this.#closed = true
  }

  close(): void {
    this.#closed = true
  }
}

const frameSeeds = Object.values(frameKinds).map((kind) => {
  const heap = heapOf(createMemory(4 * 1024 * 1024))
  const fingerprint = { kind: 0x01020304, root: 0, count: 16 }
  const place = { index: 0, credit: 1, place: 4096, guard: 1 }
  writeHeader(heap, 0, {
    ...{ kind, space: 0, group: 0, sequence: 1, fingerprint, bytes: 64, ...place },
  })
  return Uint8Array.from(heap.bytes.subarray(0, HEADER_BYTES + 64))
})

async function talk(input: Uint8Array): Promise<void> {
  const world = new SteppedWorld(2, {
    memory: 4 * 1024 * 1024,
    transport: (rank, heap) => new Peer(heap, rank === 0 ? input : new Uint8Array(0)),
  })
  const { group, engine } = world.ranks[0]!
  const works = [
    group.allReduce(new Float32Array(16)),
    group.recv(new Float32Array(16), 1),
    group.send(new Float32Array(16), 1),
  ]
  const settled = Promise.allSettled(works)
  for (let i = 0; i < 50; i++) engine.progress(true)
  engine.failAll(tsrError('ERR_TSR_INTERNAL', { what: 'the end' }))
  for (const outcome of await settled) {
    if (outcome.status === 'rejected' && isRaw(outcome.reason)) throw outcome.reason
  }
}

const fingerprint = { kind: 0x01020304, root: 0, count: 16 }
const mismatch = { rank: 0, mine: fingerprint, peer: 1, theirs: fingerprint, mySite: 'a.ts:1' }
const context = { group: 'world', sequence: 1, rank: 1, peer: 0, operation: 'allReduce' }

const error = tsrError('ERR_TSR_ARGUMENT', { name: 'a', value: 1, expected: 'b' }).toJSON()
const errorReport = {
  ...{ kind: 'error', at: 5, name: 'Error', message: 'm', text: 'Error: m\n    at a.ts:1:1' },
  ...{ short: { text: 'Error: m', hidden: 3 }, code: 'ERR_TSR_TIMEOUT', peers: [1] },
  wait: { operation: 'allReduce', label: 'l', group: 'world', milliseconds: 5, peers: [1] },
  ...{ consequence: false, silent: true },
}
const outcome = {
  ...{ rank: 1, pid: 7, exitCode: 1, signal: null, startedAt: 1, endedAt: 2, stoppedAt: null },
  ...{ error: errorReport, exitedAt: 'a.ts:1', stderrTail: ['x'], heapExhausted: false },
  usage: { cpuSeconds: 1, peakBytes: 5 },
  place: {
    ...{ state: 'operation', operation: 'allReduce', group: 'world', sequence: 1 },
    ...{ milliseconds: 5, isStopped: false },
  },
}
const findings = [
  {
    ...{ kind: 'missing', group: 'world', sequence: 1, name: 'allReduce', operation: 'allReduce' },
    missing: [{ rank: 0, last: 'barrier', running: 'send', late: false }],
    ...{ waiting: [1], unknown: [2] },
  },
  {
    ...{ kind: 'mismatch', group: 'world', sequence: 1 },
    calls: [{ operation: 'a', label: 'l', ranks: [0], sites: ['a.ts'] }],
  },
  {
    ...{ kind: 'message', group: 'world', rank: 1, name: 'send', operation: 'send/recv', tag: 0 },
    ...{ peer: 0, place: { rank: 0, last: 'a', running: 'b', late: true } },
  },
  {
    ...{ kind: 'unfinished', group: 'world', sequence: 1, name: 'a', operation: 'a' },
    ...{ running: [1], unknown: [], errors: ['ERR'], waitsFor: [0] },
  },
  { kind: 'slow', group: 'world', rank: 1, collectives: 9, last: 8, behind: 3 },
]
const report = {
  ...{ nodeRank: 0, outcomes: [outcome, { ...outcome, rank: 0, error: undefined }] },
  interruption: undefined,
  facts: { host: 'h', memory: { kills: 0, available: 5, limit: 9 }, logs: '/l', findings },
}
const nodes = [0, 1].map((nodeRank) => {
  return { id: `n${nodeRank}`, nodeRank, nproc: 1, host: 'h', address: '10.0.0.1', role: 'r' }
})
const plan = { runId: 'r', master: { host: '10.0.0.1', port: 29_500 }, nodes }
const registration = {
  ...{ nodeRank: 1, nnodes: 2, minNodes: 2, nproc: 1, host: 'h', pid: 7, identity: 'i' },
  ...{ address: '10.0.0.2', role: 'r', rdzvId: 'x', version: '1', node: 'v20', script: '/a' },
  digest: 'abc',
}
const verdict = judge({ plan, reports: [report as never], lost: [], restarts: 0, maxRestarts: 1 })

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

const contents = {
  ...{ save: 1, step: 2, ranks: 2, hasOptimizer: true, data: { at: 3 }, seeds: { a: 1 } },
  files: { 'rank-0.safetensors': 100 },
  tensors: {
    w: {
      ...{ dtype: 'F32', shape: [4, 2] },
      pieces: [
        {
          ...{ file: 'rank-0.safetensors', key: 'w', crc32: 5 },
          box: { offset: [0, 0], extent: [2, 2] },
          range: [0, 4],
        },
      ],
    },
  },
}

const words = (text: string): string[] => splitWords(text) ?? []

/** Reads flags as the launcher does once yargs has split them. */
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

const parsed = (input: Uint8Array): unknown => {
  try {
    return JSON.parse(textOf(input))
  } catch {
    return undefined
  }
}

/** Only what a process can have as its environment. */
function environmentOf(input: Uint8Array): Record<string, string> {
  const value = parsed(input)
  const entries = typeof value === 'object' && value !== null ? Object.entries(value) : []
  return Object.fromEntries(
    entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  )
}

/** Everything that reads what another process, host or user has written. */
export const targets: readonly Target[] = [
  {
    name: 'msgpack',
    seeds: [
      encode({ a: [1, 'x', null], b: new Map([[1, new Set(['y'])]]), c: Float32Array.of(1) }),
      encode([
        new Error('m', { cause: new TypeError('n') }),
        5n,
        new Date(5),
        [{ a: 1 }, { a: 2 }],
      ]),
    ],
    run: (input) => decode(input),
  },
  {
    name: 'store-request',
    seeds: storeRequests,
    isJson: true,
    encode: packed,
    run: serve,
  },
  {
    name: 'store-answer',
    seeds: storeAnswers,
    isJson: true,
    encode: packed,
    run: answerClient,
  },
  {
    name: 'handshake',
    seeds: [hello, new Uint8Array(HELLO_BYTES + PROOF_BYTES)],
    run: (input) => {
      const client = clientHandshake(token, 'fuzz')
      client.answer(input.subarray(0, HELLO_BYTES))
      if (client.trusts(input.subarray(HELLO_BYTES))) throw new TypeError('it is trusted')
      const server = serverHandshake(token, 'fuzz')
      server.answer(input.subarray(0, HELLO_BYTES))
      const { accepted } = server.judge(input.subarray(HELLO_BYTES), textOf(input))
      if (accepted) throw new TypeError('it is accepted')
    },
  },
  { name: 'frames', seeds: frameSeeds, run: talk },
  {
    name: 'fault',
    seeds: [json({ reason: 'x', all: true, mismatch }), json({ reason: 'x', destroyed: true })],
    isJson: true,
    encode: packed,
    run: (input) => faultError(decodeFault(input), context).message,
  },
  {
    name: 'notice',
    seeds: [encodeNotice({ kind: 'answer', text: 'x' }), encodeNotice({ kind: 'site', site: 'y' })],
    run: decodeNotice,
  },
  {
    name: 'fault-bytes',
    seeds: [encodeFault({ reason: 'x', all: true, mismatch })],
    run: (input) => faultError(decodeFault(input), context).message,
  },
  {
    name: 'error',
    seeds: [json(error), json({ ...error, code: 'ERR_TSR_STORE_ADDRESS', facts: { reason: 'x' } })],
    isJson: true,
    run: (input) => {
      const revived = reviveTsrError(parsed(input) as SerializedTsrError)
      return [revived.category, revived.isConsequence, revived.advice, revived.toJSON()]
    },
  },
  {
    name: 'control-message',
    seeds: [
      errorReport,
      { kind: 'exit', usage: { cpuSeconds: 1, peakBytes: 2 }, exitedAt: 'x' },
      { kind: 'checkpoint', step: 1, path: '/p' },
      { kind: 'stack', id: 1, stack: 'x', resources: ['y'] },
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
      if (!isReport(value)) return
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
      if (isVerdict(value)) showVerdict(value)
    },
  },
  {
    name: 'arrival',
    seeds: [json({ id: 'n1', node: registration, storeAddress: '10.0.0.1' })],
    isJson: true,
    run: (input) => {
      const value = parsed(input)
      if (!isArrival(value)) return
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
      if (!invitationOf('n1')(value)) return
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
    name: 'checkpoint-index',
    seeds: [json(contents)],
    isJson: true,
    // with the right checksum: what is checked behind it matters
    encode: (value) =>
      Buffer.from(
        typeof value === 'object' && value !== null ? encodeContents(value as never) : json(value),
      ),
    run: (input) => decodeContents(textOf(input)),
  },
  {
    name: 'safetensors-header',
    seeds: [
      json({
        __metadata__: { a: 'b' },
        w: { dtype: 'F32', shape: [2, 2], data_offsets: [0, 16] },
        b: { dtype: 'BF16', shape: [2], data_offsets: [16, 20] },
      }),
    ],
    isJson: true,
    run: (input) => parseHeader(input, 20),
  },
  {
    name: 'hub-index',
    seeds: [json({ metadata: { total_size: 20 }, weight_map: { w: 'model-1.safetensors' } })],
    isJson: true,
    run: async (input) => {
      fileOf('model.safetensors.index.json', input)
      await (await openModelFiles(folder)).close()
    },
  },
  {
    name: 'gpt2-config',
    seeds: [json({ vocab_size: 100, n_positions: 32, n_embd: 8, n_layer: 2, n_head: 2 })],
    isJson: true,
    run: async (input) => {
      fileOf('config.json', input)
      await readGPT2Config(folder)
    },
  },
  {
    name: 'tuning-file',
    seeds: [
      json({
        version: 1,
        sockets: { allGather: [{ upTo: 65_536, algorithm: 'bruck' }, { algorithm: 'ring' }] },
        sharedMemory: { allGather: [{ algorithm: 'direct' }] },
      }),
    ],
    isJson: true,
    run: (input) => readTuning(fileOf('tuning.json', input)),
  },
  {
    name: 'status-page',
    seeds: [new Uint8Array(4096), new Uint8Array(200)],
    run: (input) => readStatusPage(fileOf('status', input)),
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
    name: 'schedule-file',
    seeds: ['0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n', '0F0,,0I0,0W0'],
    run: (input) => parseActions(textOf(input)),
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
    name: 'lists',
    seeds: ['0,2-3', '"a b" c\\ d', "it's"],
    run: (input) => [parseRankList(textOf(input)), words(textOf(input))],
  },
]

/** Makes the text of a failure, which the launcher prints. */
function showVerdict(judged: ReturnType<typeof judge>): void {
  if (judged.kind === 'failure') failureText(judged.failure, true)
}
