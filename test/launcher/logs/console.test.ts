import { PassThrough, Writable } from 'node:stream'
import { jest } from '@jest/globals'
import { announceSilence } from '../../internals/launcher/job.ts'
import { createAnnouncer, openConsole } from '../../internals/launcher/logs.ts'

/** An output whose reader takes nothing until it is told to. */
class SlowReader extends Writable {
  text = ''
  #waiting: (() => void)[] = []

  constructor() {
    super({ highWaterMark: 10 })
  }

  override _write(chunk: Buffer, _: string, done: () => void): void {
    this.text += chunk.toString()
    this.#waiting.push(done)
  }

  read(): void {
    for (const done of this.#waiting.splice(0)) done()
  }
}

it('pauses the output of ranks while the reader of the console is slow', async () => {
  const stdout = new SlowReader()
  const console = openConsole({ stdout, stderr: new PassThrough() }, () => undefined)
  const source = new PassThrough().resume()
  console.throttle('stdout', source)
  console.write('stdout', 'x'.repeat(20))
  expect({ paused: source.isPaused(), waiting: console.isWaiting() }).toEqual({
    paused: true,
    waiting: true,
  })
  stdout.read()
  await new Promise(setImmediate)
  expect({ paused: source.isPaused(), waiting: console.isWaiting() }).toEqual({
    paused: false,
    waiting: false,
  })
})

it('the console reports once that its reader is gone, then drops the output', async () => {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const told: unknown[] = []
  const console = openConsole({ stdout, stderr }, (error) => told.push(error))
  const source = new PassThrough().pause()
  console.throttle('stdout', source)
  stdout.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
  await new Promise(setImmediate)
  console.write('stdout', 'unheard')
  await console.flush()
  expect({ told, paused: source.isPaused() }).toEqual({ told: [undefined], paused: false })
  expect({ said: stderr.read(), isIncomplete: console.isIncomplete }).toEqual({
    said: null,
    isIncomplete: false,
  })
})

/** An output of an error at each write, like a full disk. */
function failing(code: string): Writable {
  return new Writable({
    write: (_chunk, _encoding, done) => {
      done(Object.assign(new Error(`${code}: cannot write`), { code }))
    },
  })
}

it('the console reports on stderr that stdout cannot be written', async () => {
  const stderr = new PassThrough()
  const told: (string | undefined)[] = []
  const console = openConsole({ stdout: failing('ENOSPC'), stderr }, (error) =>
    told.push(error?.code),
  )
  console.write('stdout', 'lost')
  console.write('stdout', 'lost as well')
  await console.flush()
  expect({ told, said: String(stderr.read()), isIncomplete: console.isIncomplete }).toEqual({
    told: ['ENOSPC'],
    said: 'tsrun: stdout cannot be written: ENOSPC: cannot write\n',
    isIncomplete: true,
  })
})

it('the console writes text to stdout if stderr cannot be written', async () => {
  const stdout = new PassThrough()
  const console = openConsole({ stdout, stderr: failing('EIO') }, () => undefined)
  console.write('stderr', 'the report, ')
  console.write('stderr', 'whose end ')
  await console.flush()
  console.write('stderr', 'comes later')
  await console.flush()
  const said = String(stdout.read())
  expect(said).toContain('the report, whose end ')
  expect(said).toContain('tsrun: stderr cannot be written: EIO: cannot write\n')
  expect(said).toMatch(/comes later$/)
})

it('the console does not touch a stream that no rank has used', async () => {
  const console = openConsole({ stdout: failing('ENOSPC'), stderr: failing('ENOSPC') }, () => {
    throw new Error('written')
  })
  await console.flush()
  expect(console.isIncomplete).toBe(false)
})

it('a job that has shown nothing for a while is announced, but not after its first line', () => {
  jest.useFakeTimers()
  const said = (line: string): string => {
    const stderr = new SlowReader()
    const console = openConsole({ stdout: new PassThrough(), stderr }, () => undefined)
    announceSilence('run', { console, announcer: createAnnouncer(console, 'pretty') })
    if (line !== '') console.write('stdout', line)
    jest.advanceTimersByTime(5000)
    return stderr.text
  }
  try {
    expect(said('loss 3\n')).toBe('')
    expect(said('')).toBe('tsrun: run run has shown nothing yet; tsrun ps shows what it does\n')
  } finally {
    jest.useRealTimers()
  }
})

it.each([
  ['raw', '\x1b\\\x1b(B\x0f\x1b[0mtsrun: done\n'],
  ['pretty', 'tsrun: done\n'],
] as const)('with --log-format %s a message on a terminal is %j', (format, expected) => {
  const stderr = Object.assign(new PassThrough(), { isTTY: true })
  const console = openConsole({ stdout: new PassThrough(), stderr }, () => undefined)
  createAnnouncer(console, format).say('end', 'done')
  expect(String(stderr.read())).toBe(expected)
})
