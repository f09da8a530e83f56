import { PassThrough, Writable } from 'node:stream'
import { Console } from '../../../packages/launcher/src/logs/console.ts'

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

it('has ranks wait while the reader is slow, and go on afterwards', async () => {
  const stdout = new SlowReader()
  const console = new Console({ stdout, stderr: new PassThrough() }, () => undefined)
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

it('reports once that its reader is gone, then drops the output', async () => {
  const stdout = new PassThrough()
  let told = 0
  const console = new Console({ stdout, stderr: new PassThrough() }, () => told++)
  const source = new PassThrough().pause()
  console.throttle('stdout', source)
  stdout.destroy(new Error('write EPIPE'))
  await new Promise(setImmediate)
  console.write('stdout', 'unheard')
  await console.flush()
  expect({ told, paused: source.isPaused() }).toEqual({ told: 1, paused: false })
})
