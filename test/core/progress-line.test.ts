import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type * as Core from '@tsrun/core'

const path = fileURLToPath(new URL('../../packages/core/dist/index.js', import.meta.url))

/** Prints lines once its reader has gone. Runs in a process of its own. */
const program = async (): Promise<void> => {
  const { ProgressLine } = (await import(process.argv[1]!)) as typeof Core
  process.stdin.once('end', () => {
    const line = new ProgressLine()
    for (let i = 0; i < 20; i++) line.log(String(i))
    setImmediate(() => {
      console.error('the end')
    })
  })
  process.stdin.resume()
}

it('a progress line whose reader has gone does not end the program', async () => {
  const child = spawn(process.execPath, ['-e', `(${program.toString()})()`, path])
  child.stdout.destroy()
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  await once(child.stdout, 'close')
  child.stdin.end()
  const [code] = (await once(child, 'close')) as [number]
  expect({ code, stderr }).toEqual({ code: 0, stderr: 'the end\n' })
})
