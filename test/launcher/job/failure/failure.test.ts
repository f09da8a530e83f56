import {
  describeFailure,
  exitCodeOf,
  failureText,
  findRootCause,
} from '../../../internals/launcher/report.ts'
import type { Failure, MemoryEvents, RankOutcome } from '../../../internals/launcher/nodes.ts'
import { crashed, died, errorReport, exited, killed, stopped } from '../../support/outcomes.ts'

const quiet: MemoryEvents = { kills: 0, limit: undefined }

function describeJob(outcomes: RankOutcome[], memory = quiet, logs?: string): Failure {
  const cause = findRootCause(outcomes)!
  const failure = describeFailure(cause, outcomes, { host: 'node0', memory, logs })
  return { ...failure, jobExitCode: exitCodeOf(cause, memory) }
}

it('shows the cause first, then its consequences, then the paths of logs', () => {
  const victim = errorReport({
    at: 120,
    code: 'ERR_TSR_PEER_LOST',
    peers: [1],
    distance: 3,
    text: 'TsrError: …',
  })
  const failure = describeJob(
    [died(0, victim), died(1, errorReport({ at: 100 })), stopped(2), stopped(3), exited(4, 0)],
    quiet,
    'logs/run/attempt_0',
  )
  const text = failureText(failure, false, 'node0')
  expect(text)
    .toBe(`── tsrun: the job failed ───────────────────────────────────────────────────────
first cause  rank 1 of 5 died of an uncaught error (exit code 1), after 0.10 s
process      1001 on node0
error        Error: boom
                 at train (/train.mjs:3:9)
others       rank 0: failed because of rank 1 (ERR_TSR_PEER_LOST), after 0.12 s
             rank 4: had finished, after 0.20 s
             ranks 2-3: stopped by tsrun, after 0.30 s
logs         logs/run/attempt_0
── exit code 1 ─────────────────────────────────────────────────────────────────
`)
  expect(failureText(failure, false, 'node1')).toContain('logs/run/attempt_0 on node0\n')
  expect(failureText(failure, true)).toMatch(
    /^\x1b\[1m\x1b\[31m── tsrun: the job failed ─+\x1b\[39m\x1b\[22m\n/,
  )
})

it('is folded at 80 columns, and names the run', () => {
  const long = errorReport({ at: 120, name: 'TypeError', message: 'word '.repeat(40), text: 'x' })
  const failure = describeJob([died(0, errorReport({ at: 100 })), died(1, long)])
  const text = failureText({ runId: '20261127-201502-9f3a1c', ...failure }, false)
  expect(text).toContain('\nothers       rank 1: TypeError: word word')
  expect(text).toContain('\nrun          20261127-201502-9f3a1c\n')
  expect(text.split('\n').filter((line) => line.length > 80)).toEqual([])
})

it('shows the error of a rank that was stopped before it exited', () => {
  const dying = stopped(1, { error: errorReport({ at: 100 }), stoppedAt: 120 })
  const text = failureText(describeJob([stopped(0), dying]), false)
  expect(text).toContain('rank 1 of 2 died of an uncaught error (exit code 1)')
  expect(text).toContain('── exit code 1 ──')
  expect(text).not.toContain('SIGTERM')
})

it('groups ranks that fail with the same error', () => {
  const alike = [0, 1, 2, 3].map((rank) => died(rank, errorReport({ at: 100 + rank })))
  expect(describeJob(alike).others).toEqual(['ranks 1-3: the same error, after 0.10 s'])
})

it('groups ranks whose errors differ in numbers', () => {
  const numbered = [0, 1, 2].map((rank) =>
    died(
      rank,
      errorReport({ at: 100 + rank, text: `Error: no shard ${rank}\n    at a (/a.mjs:3:9)` }),
    ),
  )
  const elsewhere = errorReport({ at: 110, text: 'Error: no shard 4\n    at a (/a.mjs:4:9)' })
  expect(describeJob([...numbered, died(4, elsewhere)]).others).toEqual([
    'ranks 1-2: the same error with other numbers, after 0.10 s',
    'rank 4: Error: boom, after 0.11 s',
  ])
})

it('shows the source and each line of stderr once, however Node printed the error', () => {
  const frame = ['file:///train.mjs:3', 'const x = ;', '          ^', '']
  const stack = ['Error: boom', '    at train (/train.mjs:3:9)']
  const tail = ['epoch 1', ...frame, ...stack, '', 'Node.js v20.20.2', 'after the end']
  const failure = describeJob([died(0, errorReport({}), { stderrTail: tail })])
  expect(failure.error).toBe([...frame, ...stack].join('\n'))
  expect(failure.stderr).toEqual(['epoch 1', 'after the end'])
})

it('says that a script with a top-level await is CommonJS', () => {
  const message = 'Transform failed: Top-level await is not supported with the "cjs" output format'
  const failure = describeJob([died(0, errorReport({ message }))])
  expect(failure.explanation).toMatch(/^Node reads the file as CommonJS\. "type": "module"/)
})

it('shows the last twenty lines of stderr of a rank that died without a report', () => {
  const stderrTail = Array.from({ length: 50 }, (_, line) => `line ${line}`)
  const failure = describeJob([killed(0, 'SIGSEGV', 10, { stderrTail })])
  expect(failure.stderr).toHaveLength(20)
  expect(failure.stderr.at(-1)).toBe('line 49')
})

it('says that ranks may wait for each other, if waiting is all that is known', () => {
  const waits = (peer: number) =>
    errorReport({ distance: 2, wait: { operation: 'recv', milliseconds: 100, peers: [peer] } })
  const { explanation } = describeJob([died(0, waits(1)), died(1, waits(0))])
  expect(explanation).toContain('they may wait for each other')
})

it('leaves out the dump of an exhausted heap', () => {
  const stderrTail = ['epoch 1', '', '<--- Last few GCs --->', 'FATAL ERROR: …', '1: 0xb78db3']
  const failure = describeJob([crashed(0, { stderrTail })])
  expect(failure.stderr).toEqual(['epoch 1'])
  expect(failure.explanation).toContain('--max-old-space-size')
})

it('blames the out-of-memory killer only on evidence', () => {
  const usage = { cpuSeconds: 1, peakBytes: 3 * 2 ** 30 }
  const outcomes = [killed(0, 'SIGKILL', 10, { usage })]
  expect(describeJob(outcomes).explanation).toContain('the kernel counted no out-of-memory kill')
  const memory = { kills: 1, limit: 4 * 2 ** 30 }
  expect(describeJob(outcomes, memory).explanation).toBe(
    'The kernel’s out-of-memory killer was active while the job ran. ' +
      'The rank was using 3 GiB when it was last measured. The memory limit of this job’s cgroup is 4 GiB.',
  )
  const unknown = { kills: undefined, limit: undefined }
  expect(describeJob([killed(0, 'SIGKILL', 10)], unknown).explanation).toBe(
    'SIGKILL came from kill -9, a scheduler, or the kernel’s out-of-memory killer.',
  )
})

it('names ulimit -v if memory could not be allocated', () => {
  const stderrTail = ['RangeError: WebAssembly.Memory(): could not allocate memory']
  const memory = { ...quiet, limits: ' (ulimit -v: 4000000)' }
  const outcomes = [killed(0, 'SIGABRT', 10, { stderrTail })]
  expect(describeJob(outcomes, memory).explanation).toContain(
    'The address space is used up (ulimit -v: 4000000).',
  )
  expect(describeJob(outcomes).explanation).toContain('abort()')
})

it.each([
  'node[15464]: pthread_create: Resource temporarily unavailable',
  '#  Assertion failed: (0) == (uv_thread_create(t.get(), start_thread, this))',
  'spawn git EAGAIN',
  'EAGAIN',
])('names the limit of processes if a rank ended with "%s"', (line) => {
  const memory = { ...quiet, limits: ' (pids.max of the cgroup: 45)' }
  const outcome = line.endsWith('EAGAIN')
    ? died(0, errorReport({ at: 10, message: line }))
    : killed(0, 'SIGABRT', 10, { stderrTail: ['before', line, 'after'] })
  expect(describeJob([outcome], memory).explanation).toBe(
    'The host allows no more processes and threads (pids.max of the cgroup: 45). ' +
      'Raise that limit, or start fewer ranks.',
  )
})

it('shows lines that loggers wrote as JSON as text', () => {
  const ours = { level: 40, name: 'distributed', runId: 'r', msg: 'barrier #4 has waited 30 s' }
  const theirs = { level: 'error', time: 1, message: 'the disk is full' }
  const stderrTail = [JSON.stringify(ours), JSON.stringify(theirs), '{"loss":3}']
  const failure = describeJob([killed(0, 'SIGSEGV', 10, { stderrTail })])
  expect(failure.stderr).toEqual([
    'WARN distributed: barrier #4 has waited 30 s',
    'ERROR the disk is full',
    '{"loss":3}',
  ])
})

it('hides library frames, and says how many and which file has them', () => {
  const short = { text: 'Error: boom\n    at train (/train.mjs:3:9)', hidden: 4 }
  const outcomes = [died(0, errorReport({ short, text: 'all of it' }))]
  expect(describeJob(outcomes).error).toBe(
    `${short.text}\n    (4 frames of libraries hidden; TSRUN_DEBUG=detail shows them)`,
  )
  expect(describeJob(outcomes, quiet, 'logs').error).toContain('is in logs/0/stderr.log)')
  const facts = { host: 'node0', memory: quiet, logs: undefined, isDetailed: true }
  expect(describeFailure(findRootCause(outcomes)!, outcomes, facts).error).toBe('all of it')
})

it('groups ranks that timed out in the same operation', () => {
  const wait = { operation: 'barrier #4', group: 'world', milliseconds: 30, peers: [3] }
  const timedOut = [0, 1, 2].map((rank) =>
    died(
      rank,
      errorReport({ distance: 2, wait, text: `Rank ${rank}`, code: 'ERR_TSR_OPERATION_TIMEOUT' }),
    ),
  )
  expect(describeJob([...timedOut, stopped(3)])).toMatchObject({
    rank: 3,
    others: [
      'rank 0: the error above, after 0.10 s',
      'ranks 1-2: timed out in barrier #4, waiting for rank 3, after 0.10 s',
    ],
  })
})
