import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runTool, testOptions, type ToolContext } from '../../internals/doctor.ts'
import { processState, until } from '../../launcher/support/tsrun.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-tool-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

const toolContext = (changes: Partial<ToolContext> = {}): ToolContext => ({
  title: 'TensorFlow',
  env: process.env,
  signal: new AbortController().signal,
  log: join(folder, 'log'),
  say: () => undefined,
  ...changes,
})

it.each([
  ['', 'sh is working'],
  [
    'Collecting\\n\\033[32mDownloading nvidia_cudnn.whl (706.8 MB)\\033[0m\\n  ━━━ 7/706.8 MB\\n',
    'Downloading nvidia_cudnn.whl (706.8 MB)',
  ],
])('a tool that takes long and prints "%s" is reported', async (printed, expected) => {
  const go = join(folder, 'go')
  const said: string[] = []
  const say = (sentence: string): void => {
    said.push(sentence.replace(/^… \d+ s: /, ''))
    if (sentence.endsWith(expected)) writeFileSync(go, '')
  }
  const script = `printf "$1"; while [ ! -e "$2" ]; do sleep 0.01; done; echo done`
  const context = toolContext({ say, reminderInterval: 5 })
  const output = await runTool(context, '/bin/sh', ['-c', script, 'sh', printed, go])
  expect(output).toMatchObject({ ok: true, stdout: expect.stringMatching(/done\n$/) as string })
  expect(said).toContain(expected)
})

it('a fast tool is not reported, and the log has all its output', async () => {
  const said: string[] = []
  const say = (sentence: string): void => void said.push(sentence)
  const output = await runTool(toolContext({ say }), 'sh', ['-c', 'echo out; echo err >&2; exit 3'])
  expect(output).toEqual({ ok: false, stdout: 'out\n', stderr: 'err\n' })
  const log = readFileSync(join(folder, 'log'), 'utf8')
  expect(log).toMatch(/^\$ sh -c /)
  expect(log).toMatch(/^out$/m)
  expect(log).toMatch(/^err$/m)
  expect(said).toEqual([])
})

it("a process that tests an installation gets NODE_OPTIONS under Yarn's Plug'n'Play only", () => {
  const env = { NODE_OPTIONS: '--require /project/.pnp.cjs' }
  const versions = process.versions as { pnp?: string }
  expect(testOptions({ env })).toBe('')
  versions.pnp = '3'
  try {
    expect(testOptions({ env })).toBe('--require /project/.pnp.cjs')
    expect(testOptions({ env: {} })).toBe('')
  } finally {
    delete versions.pnp
  }
})

it('a tool that a signal ends is said to have ended so', async () => {
  const output = await runTool(toolContext(), 'sh', ['-c', 'kill -ILL $$'])
  expect(output).toEqual({ ok: false, stdout: '', stderr: '\nended by SIGILL' })
})

it('a missing tool has no result', async () => {
  expect(await runTool(toolContext(), join(folder, 'none'), [])).toMatchObject({ isMissing: true })
})

it('a tool and its children are killed at an interrupt and at the time limit', async () => {
  const mark = join(folder, 'mark')
  const hang = ['-c', `sleep 1000 & echo $! >"$1.new"; mv "$1.new" "$1"; wait`, 'sh', mark]
  const user = new AbortController()
  const running = runTool(toolContext({ signal: user.signal }), 'sh', hang)
  await until(() => existsSync(mark), 'the tool runs')
  const child = Number(readFileSync(mark, 'utf8'))
  user.abort(new Error('Ctrl-C'))
  await expect(running).rejects.toThrow('Ctrl-C')
  await until(() => [undefined, 'Z'].includes(processState(child)), 'its child is gone')

  const late = await runTool(toolContext(), 'sh', ['-c', 'sleep 1000'], { limit: 50 })
  expect(late).toMatchObject({ ok: false, stderr: '\nstopped after 0.05 s' })
})
