import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fakeHosts } from '../support/fake-ssh.ts'
import { root } from '../../docs/run.ts'
import { findFreePort } from '../../internals/launcher/nodes.ts'
import { tsrunHere } from '../support/in-process.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-hosts-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

it.each(['$(touch made)', 'A;touch made', 'A=B', '1A', '`touch made`'])(
  'tsrun hosts never passes an invalid variable name to a shell: %s',
  async (name) => {
    const file = join(folder, 'hosts')
    writeFileSync(file, 'here\n')
    const ssh = ['--ssh', 'sh -c touch\\ made']
    const args = ['hosts', '--hostfile', file, ...ssh, '--env', `HOME,${name}`, '--', 'hello.mjs']
    const { code, stderr } = await tsrunHere(args, { env: { [name]: '1' }, cwd: folder })
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining(`--env: ${name} is no name of a variable`),
    })
    expect(existsSync(join(folder, 'made'))).toBe(false)
  },
)

it('tsrun hosts shows control sequences that a host sends, and a last line without an end', async () => {
  const { file, ssh } = fakeHosts(folder, ['here'], "*) printf 'a\\033[2Jb\nlast' ;;")
  const args = ['hosts', '--hostfile', file, ...ssh, '--', 'hello.mjs']
  expect(await tsrunHere(args, { cwd: folder })).toEqual({
    code: 0,
    stdout: 'here | a␛[2Jb\nhere | last\n',
    stderr: '',
  })
})

it('tsrun hosts makes a token if TSRUN_TOKEN is empty', async () => {
  const { file, ssh } = fakeHosts(folder, ['here'], '*) read token; echo "$token" ;;')
  const args = ['hosts', '--hostfile', file, ...ssh, '--', 'hello.mjs']
  const { stdout } = await tsrunHere(args, { cwd: folder, env: { TSRUN_TOKEN: '' } })
  expect(stdout).toMatch(/^here \| [0-9a-f]{64}\n$/)
})

it('tsrun hosts ends with 75 if the connection to a host is lost, and skips what a shell prints first', async () => {
  const cases = `*" b "*) exit 255 ;;
    *) read token; read signal; echo "got $signal"; exit 143 ;;`
  const { file, ssh } = fakeHosts(folder, ['a', 'b'], cases, 'echo "Welcome, 24.04"')
  const args = ['hosts', '--hostfile', file, ...ssh, '--', 'hello.mjs']
  expect(await tsrunHere(args, { cwd: folder })).toEqual({
    code: 75,
    stdout: 'a | got SIGTERM\n',
    stderr: 'tsrun: the connection to b has failed\n',
  })
})

it.each([
  ['ssh: connect to host b port 22: Connection refused', 75],
  ['kex_exchange_identification: Connection closed by remote host', 75],
  ['Connection timed out during banner exchange', 75],
  ['ssh: Could not resolve hostname b: Temporary failure in name resolution', 75],
  ['ssh: Could not resolve hostname b: Name or service not known', 2],
  ['b: Permission denied (publickey).', 2],
  ['kex_exchange_identification: banner line contains invalid characters', 2],
  ['channel 0: open failed: connect failed: No route to host', 75],
  ['gateway: Permission denied (publickey).', 2],
])('tsrun hosts starts nothing if ssh says "%s", and ends with %i', async (said, code) => {
  const fails = `case "$*" in *" b "*) echo "${said}" >&2; exit 255 ;; esac`
  const { file, ssh } = fakeHosts(folder, ['a', 'b'], '*) echo started ;;', fails)
  const args = ['hosts', '--hostfile', file, ...ssh, '--', 'hello.mjs']
  expect(await tsrunHere(args, { cwd: folder })).toEqual({
    code,
    stdout: '',
    stderr: expect.stringContaining(`host b: ${said}`),
  })
})

it('a program that exits with 255 is not taken for a lost connection', async () => {
  const [script, file] = [join(folder, 'ssh'), join(folder, 'hosts')]
  // Runs the command on this host, after a start-up file that prints a line without an end.
  writeFileSync(script, 'for command; do :; done; printf "Now using node "; exec sh -c "$command"')
  writeFileSync(file, 'localhost\n')
  const port = String(await findFreePort('localhost'))
  const ssh = ['--ssh', `sh ${script}`, '--port', port]
  const program = ['--no-python', 'sh', '-c', 'exit 255']
  const { code, stderr } = await tsrunHere(
    ['hosts', '--hostfile', file, ...ssh, '--', ...program],
    { cwd: root },
  )
  expect({ code, stderr }).toEqual({
    code: 254,
    stderr: expect.stringContaining('exited with code 255'),
  })
})
