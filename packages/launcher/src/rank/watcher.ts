import { Worker } from 'node:worker_threads'
import { SUFFER } from './control-message.ts'

/** Milliseconds that the main thread has for an answer. */
const ANSWER_TIME = 1000

/**
 * What the main thread evaluates, in the middle of its work: V8 interrupts loops, and Atomics.wait too.
 * The names of what keeps the event loop alive tell what a thread without a stack waits for.
 */
const QUESTION = `(() => {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 100
  const { stack } = new Error()
  Error.stackTraceLimit = limit
  return JSON.stringify({ stack, resources: process.getActiveResourcesInfo() })
})()`

/** The thread, as source, because a file of its own would have to be found and loaded. */
const program = `
  const { Socket } = require('node:net')
  const { workerData: { fd, dies } } = require('node:worker_threads')
  const pipe = new Socket({ fd, readable: true, writable: true })
  const end = () => { if (dies) process.kill(-process.pid, 'SIGKILL') }
  pipe.on('error', end).on('end', end)
  let rest = ''
  pipe.setEncoding('utf8').on('data', (text) => {
    const lines = (rest + text).split('\\n')
    rest = lines.pop()
    for (const line of lines) line[0] === '{' ? bring(line) : ask(line)
  })
  const bring = (fault) => {
    const { Session } = require('node:inspector')
    const session = new Session()
    session.connectToMainThread()
    const expression = 'globalThis[Symbol.for("${SUFFER}")]?.(' + fault + ')'
    session.post('Runtime.evaluate', { expression }, () => session.disconnect())
  }
  const ask = (id) => {
    // Only here, because the inspector takes time to load.
    const { Session } = require('node:inspector')
    const session = new Session()
    let isDone = false
    const answer = (facts) => {
      if (isDone) return
      isDone = true
      clearTimeout(timer)
      session.disconnect()
      pipe.write(JSON.stringify({ kind: 'stack', id: Number(id), ...facts }) + '\\n')
    }
    const timer = setTimeout(answer, ${ANSWER_TIME}, {})
    try {
      session.connectToMainThread()
      session.post('Runtime.evaluate', { expression: ${JSON.stringify(QUESTION)} }, (error, reply) => {
        const value = reply?.result?.value
        answer(typeof value === 'string' ? JSON.parse(value) : {})
      })
    } catch {
      answer({})
    }
  }
`

/**
 * Starts a thread that listens to the launcher while the main thread is busy: it answers questions for
 * the stack of the main thread, brings faults over it (`--chaos`) and, if `dies`, kills this process with its group when the launcher ends.
 */
export function watchLauncher(controlFd: number, dies: boolean): void {
  const workerData = { fd: controlFd, dies }
  const thread = new Worker(program, { eval: true, workerData, execArgv: [], env: {} })
  // Without the thread a rank only cannot tell its stack.
  thread.on('error', () => undefined).unref()
}
