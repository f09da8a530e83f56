import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { tsrunHere } from '../support/in-process.ts'

let folder: string
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(folder, { recursive: true })
})

const failing = ['--no-summary', 'die.mjs', 'code', '0']

it('--on-failure runs a command with the report as its input, and only after a failure', async () => {
  const file = join(folder, 'said')
  const command = `(echo "$TSRUN_EXIT_CODE $TSRUN_RUN_ID"; cat) > ${file}`
  expect((await tsrunHere(['--on-failure', command, 'hello.mjs'])).code).toBe(0)
  expect(existsSync(file)).toBe(false)
  const { code, stderr } = await tsrunHere(['--on-failure', command, ...failing])
  expect(code).toBe(5)
  const [first, ...report] = readFileSync(file, 'utf8').split('\n')
  expect(first).toMatch(/^5 \d{8}-\d{6}-\w{6}$/)
  expect(stderr).toContain(report.join('\n'))
  expect(report.join('\n')).toContain('first cause  the only rank exited with code 5')
})

it.each([
  ['the script is missing', 'nowhere.mjs', 2, 'Cannot run nowhere.mjs: there is no file'],
  [
    'other hosts do not arrive',
    '--nnodes 2 --node-rank 1 --rdzv-endpoint 127.0.0.1:1 --rdzv-timeout 1 hello.mjs',
    75,
    'ERR_TSR_RENDEZVOUS_TIMEOUT',
  ],
])('--on-failure reports a job that cannot start because %s', async (_, args, exitCode, reason) => {
  const file = join(folder, 'said')
  const command = `(echo "$TSRUN_EXIT_CODE"; cat) >> ${file}`
  const env = { TSRUN_TOKEN: '0123456789abcdef'.repeat(4) }
  const { code } = await tsrunHere(['--on-failure', command, ...args.split(' ')], { env })
  expect(code).toBe(exitCode)
  const [first, report, ...more] = readFileSync(file, 'utf8').split('\n')
  expect(first).toBe(String(exitCode))
  expect(report).toContain(reason)
  expect(more).toEqual([])
})

it('--on-failure is not called for a wrong command line, nor with --dry-run', async () => {
  const file = join(folder, 'said')
  const flags = ['--on-failure', `cat > ${file}`]
  const env = { TSRUN_KEEP_LOGS: '0' }
  expect((await tsrunHere([...flags, '--detach', 'hello.mjs'], { env })).code).toBe(2)
  expect((await tsrunHere([...flags, '--dry-run', 'nowhere.mjs'])).code).toBe(2)
  expect(existsSync(file)).toBe(false)
})

it('--on-failure says that its command failed, and keeps the exit code of the job', async () => {
  const { code, stderr } = await tsrunHere(['--on-failure', 'exit 3', ...failing])
  expect(code).toBe(5)
  expect(stderr).toMatch(/^tsrun: --on-failure: exit code 3\n$/m)
})

it('--on-failure accepts a command that does not read the report', async () => {
  const args = ['--on-failure', 'exec 0<&-', '--no-summary', 'die.mjs', 'long', '0']
  const { code, stderr } = await tsrunHere(args)
  expect(code).toBe(1)
  expect(stderr).not.toContain('--on-failure')
})

it('--on-failure posts JSON to a URL', async () => {
  const posted: unknown[] = []
  const server = createServer((request, response) => {
    void json(request).then((body) => {
      posted.push(body)
      response.writeHead(posted.length === 1 ? 204 : 500).end()
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/failures`
  try {
    const first = await tsrunHere(['--on-failure', url, ...failing])
    expect(first.stderr).not.toContain('--on-failure')
    expect(posted).toEqual([
      {
        ...{ runId: expect.stringMatching(/^\d{8}-/), exitCode: 5, host: expect.any(String) },
        script: expect.stringContaining('die.mjs'),
        report: expect.stringContaining('exited with code 5'),
      },
    ])
    const second = await tsrunHere(['--on-failure', url, ...failing])
    expect(second.stderr).toContain('tsrun: --on-failure: status 500\n')
  } finally {
    server.closeAllConnections()
    server.close()
  }
})

it('--on-failure says why a URL cannot be reached', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  const { stderr } = await tsrunHere(['--on-failure', `http://127.0.0.1:${port}/`, ...failing])
  expect(stderr).toContain('--on-failure: fetch failed: connect ECONNREFUSED')
})

it('--on-failure receives no control characters of an error', async () => {
  const script = join(folder, 'red.mjs')
  writeFileSync(script, "throw new Error('a \\x1b[31mred \\x1b]0;title\\x07 reason')")
  const file = join(folder, 'said')
  const { code } = await tsrunHere(['--on-failure', `cat > ${file}`, '--no-summary', script])
  expect(code).toBe(1)
  expect(readFileSync(file, 'utf8')).toContain('a red ␛]0;title␇ reason')
})
