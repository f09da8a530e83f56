import { createServer } from 'node:net'
import { once } from 'node:events'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import {
  announcements,
  fixtures,
  killLeftovers,
  tsrun,
  untilGone,
} from '../launcher/support/tsrun.ts'

jest.setTimeout(60_000)
afterEach(killLeftovers)

describe('tsrun explains what is wrong with the call, and exits with 2', () => {
  const cases: [string, string[], RegExp][] = [
    ['no script', [], /No script given/],
    ['a script that is not there', ['nowhere.mjs'], /Cannot run nowhere\.mjs: there is no file/],
    ['a forgotten extension', ['hello'], /but there is .*hello\.mjs/],
    ['a directory', ['.'], /it is a directory/],
    ['another language', ['../../README.md'], /neither JavaScript nor TypeScript/],
    [
      'an unknown flag',
      ['--nprocs', '2', 'hello.mjs'],
      /Unknown flag --nprocs .*nearest is --nproc\)/,
    ],
    ['a flag of mpirun', ['-np', '2', 'hello.mjs'], /Unknown flag -np .*nearest is --nproc\)/],
    ['an unheard-of flag', ['--xyzzy', 'hello.mjs'], /Unknown flag --xyzzy\./],
    ['a missing value', ['--nproc'], /--nproc needs a value/],
    [
      'no rank',
      ['--nproc', '0', 'hello.mjs'],
      /--nproc is "0"; expected an integer from 1 to 4096, or auto/,
    ],
    ['no number', ['--nproc', 'abc', 'hello.mjs'], /--nproc is "abc"/],
    ['too many ranks', ['--nproc', '4097', 'hello.mjs'], /--nproc is "4097"/],
    ['a negative number', ['--nproc', '-1', 'hello.mjs'], /--nproc is "-1"/],
    ['no port', ['--master-port', '65536', 'hello.mjs'], /--master-port is "65536"/],
    [
      'no time',
      ['--grace', 'soon', 'hello.mjs'],
      /--grace is "soon"; expected a number of seconds/,
    ],
    ['no format', ['--log-format', 'xml', 'hello.mjs'], /expected pretty, json or raw/],
    ['no list of ranks', ['--ranks', '3-1', 'hello.mjs'], /--ranks is "3-1"/],
    [
      'ranks that do not exist',
      ['--ranks', '0,4', '--nproc', '4', 'hello.mjs'],
      /names rank 4, but this job has ranks 0 to 3/,
    ],
    [
      'an address of another host',
      ['--master-addr', '192.0.2.1', 'hello.mjs'],
      /cannot listen at 192\.0\.2\.1:0: this host has no such address/,
    ],
  ]

  it.each(cases)('%s', async (_, args, message) => {
    const { code, stdout, stderr } = await tsrun(args)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toMatch(message)
    expect(stderr).toMatch(/^tsrun: .*\(ERR_TSR_\w+\)\n$/)
  })

  it('names the variable when the value came from the environment', async () => {
    const { code, stderr } = await tsrun(['hello.mjs'], { env: { TSRUN_NPROC: 'many' } })
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining('TSRUN_NPROC is "many"'),
    })
  })

  it('refuses a token that is too weak, without showing it', async () => {
    const { code, stderr } = await tsrun(['hello.mjs'], { env: { TSRUN_TOKEN: 'swordfish' } })
    expect(code).toBe(2)
    expect(stderr).toContain('TSRUN_TOKEN is not a hexadecimal secret')
    expect(stderr).not.toContain('swordfish')
  })

  it('names host and port when the port is taken', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    try {
      const { port } = server.address() as { port: number }
      const { code, stderr } = await tsrun(['--master-port', String(port), 'hello.mjs'])
      expect(code).toBe(2)
      expect(stderr).toContain(
        `cannot listen at 127.0.0.1:${port}: another process has taken the port`,
      )
    } finally {
      server.close()
    }
  })

  it('says which rank could not be started, and leaves none of the others behind', async () => {
    const { code, stdout, stderr } = await tsrun(['--nproc', '64', 'wait.mjs'], { openFiles: 120 })
    expect(code).toBe(2)
    expect(stderr).toMatch(/^tsrun: Rank \d+ of 64 could not be started: .*EMFILE.*\n$/)
    await untilGone(announcements(stdout).map(({ pid }) => pid))
  })

  it('says so when the log directory cannot be made', async () => {
    const { code, stderr } = await tsrun(['--log-dir', join(fixtures, 'hello.mjs'), 'hello.mjs'])
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining('Cannot write log files in'),
    })
  })
})

it('shows help and version on stdout, whatever else is on the line', async () => {
  const help = await tsrun(['--nproc', '2', '--help'])
  expect({ code: help.code, stderr: help.stderr }).toEqual({ code: 0, stderr: '' })
  expect(help.stdout).toContain('tsrun [flags] script [arguments of the script]')
  for (const command of ['ps [RUN-ID]', 'flight FOLDER', 'doctor', 'setup WHAT', 'completion']) {
    expect(help.stdout).toMatch(`\n  tsrun ${command} `)
  }
  const version = await tsrun(['--version'])
  expect(version).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    stderr: '',
  })
})

it('completes flags and commands in bash and zsh', async () => {
  const shell = await tsrun(['completion'], { env: { SHELL: '/bin/bash' } })
  expect(shell).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('--get-yargs-completions'),
  })
  const answer = await tsrun(['--get-yargs-completions', 'tsrun', '--max'])
  expect(answer).toMatchObject({ code: 0, stdout: expect.stringContaining('--max-restarts') })
  const command = await tsrun(['--get-yargs-completions', 'tsrun', 'do'])
  expect(command).toMatchObject({ code: 0, stdout: 'doctor\n' })
  // left to the shell: the name of a script
  const script = await tsrun(['--get-yargs-completions', 'tsrun', ''])
  expect(script).toMatchObject({ code: 0, stdout: '' })
})
