import { createServer } from 'node:net'
import { once } from 'node:events'
import { join } from 'node:path'
import { tsrunHere } from '../support/in-process.ts'
import { fixtures } from '../support/tsrun.ts'

describe('tsrun explains what is wrong with the call, and exits with 2', () => {
  const cases: [string, string[], RegExp][] = [
    ['no script', [], /No script given/],
    ['a script that is not there', ['nowhere.mjs'], /Cannot run nowhere\.mjs: there is no file/],
    ['a forgotten extension', ['hello'], /but there is .*hello\.mjs/],
    ['a directory', ['.'], /it is a directory/],
    ['another language', ['../../README.md'], /neither JavaScript nor TypeScript/],
    [
      'no rank',
      ['--nproc', '0', 'hello.mjs'],
      /--nproc is "0"; expected an integer from 1 to 4096, auto, gpu or cpu/,
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
      /cannot listen at 192\.0\.2\.1:0: listen EADDRNOTAVAIL/,
    ],
  ]

  it.each(cases)('%s', async (_, args, message) => {
    const { code, stdout, stderr } = await tsrunHere(args)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toMatch(message)
    expect(stderr).toMatch(/^tsrun: .*\(ERR_TSR_\w+\)\n$/)
  })

  it('names the variable when the value came from the environment', async () => {
    const { code, stderr } = await tsrunHere(['hello.mjs'], { env: { TSRUN_NPROC: 'many' } })
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining('TSRUN_NPROC is "many"'),
    })
  })

  it('refuses a token that is too weak, without showing it', async () => {
    const { code, stderr } = await tsrunHere(['hello.mjs'], { env: { TSRUN_TOKEN: 'swordfish' } })
    expect(code).toBe(2)
    expect(stderr).toContain('TSRUN_TOKEN is not a hexadecimal secret')
    expect(stderr).not.toContain('swordfish')
  })

  it('names host and port if the port is in use', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    try {
      const { port } = server.address() as { port: number }
      const { code, stderr } = await tsrunHere(['--master-port', String(port), 'hello.mjs'])
      expect(code).toBe(2)
      expect(stderr).toContain(`cannot listen at 127.0.0.1:${port}: listen EADDRINUSE`)
    } finally {
      server.close()
    }
  })

  it('says that the log directory cannot be created', async () => {
    const { code, stderr } = await tsrunHere([
      '--log-dir',
      join(fixtures, 'hello.mjs'),
      'hello.mjs',
    ])
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining('Cannot write log files in'),
    })
  })
})

describe('--dry-run', () => {
  it('prints the environment (without the token) and the command of each rank, and starts nothing', async () => {
    const { code, stdout, stderr } = await tsrunHere([
      '--nproc',
      '2',
      '--dry-run',
      'hello.mjs',
      'a b',
    ])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toContain('rank 1\n  RANK=1\n  WORLD_SIZE=2\n')
    expect(stdout).toContain('  MASTER_PORT=(chosen at the start)\n')
    expect(stdout).toMatch(/^ {2}.*\/node .*--import file:.*preload\.js .*hello\.mjs 'a b'$/m)
    expect(stdout).not.toMatch(/TOKEN|hello from/)
  })
})
