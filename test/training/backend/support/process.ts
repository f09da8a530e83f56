import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const tsx = import.meta.resolve('tsx')
// The build, which loads ten times as fast as the sources.
const entry = fileURLToPath(new URL('../../../../packages/training/dist/index.js', import.meta.url))

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a module in a process of its own, with the training package as `training`. */
export async function runModule(script: string, env: Record<string, string> = {}): Promise<Ended> {
  const source = `import * as training from ${JSON.stringify(entry)}\n${script}`
  const loader = source.includes('.ts"') || source.includes(".ts'") ? ['--import', tsx] : []
  const flags = [...loader, '--input-type=module', '-e', source]
  const child = spawn(process.execPath, flags, {
    env: { ...process.env, ...env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => (output[name] += text))
  }
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
    child.on('close', (...end) => {
      resolve(end)
    })
  })
  return { code, signal, ...output }
}
