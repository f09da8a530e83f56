// Shows what a terminal of 80 and of 120 columns shows: runs commands in tmux, and writes the screens
// to docs/terminal/.
// node scripts/capture-terminal.mjs [NAME...]
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = new URL('../docs/terminal/', import.meta.url)

/** What is typed, and for `top` what runs beside it. */
const captures = {
  pipeline: { command: 'npx tsrun --nproc 4 examples/pipeline.ts --report' },
  interleaved: { command: 'npx tsrun --nproc 4 examples/interleaved.ts' },
  top: {
    command: 'npx tsrun top --once',
    beside: 'npx tsrun --nproc 4 examples/pipeline.ts --epochs 20',
  },
  failure: { command: 'npx tsrun --nproc 4 test/fixtures/launcher/die.mjs throw' },
}
const LONGEST = 120_000
let captured = 0

try {
  execFileSync('tmux', ['-V'])
} catch {
  console.log('skipped: no tmux')
  process.exit()
}
mkdirSync(folder, { recursive: true })
const names = process.argv.slice(2)
for (const [name, { command, beside }] of Object.entries(captures)) {
  if (names.length > 0 && !names.includes(name)) continue
  for (const columns of [80, 120]) {
    const screen = await capture(command, columns, beside)
    const widest = Math.max(...screen.split('\n').map((line) => line.length))
    writeFileSync(new URL(`${name}-${columns}.txt`, folder), screen)
    console.log(`docs/terminal/${name}-${columns}.txt: the widest line has ${widest} characters`)
  }
}

/**
 * @param {string} command
 * @param {number} columns
 * @param {string | undefined} beside - a job that runs meanwhile
 */
async function capture(command, columns, beside) {
  // A server of its own, which may still end when the next one starts.
  const session = `tsrun-capture-${process.pid}-${++captured}`
  const tmux = (...args) => execFileSync('tmux', ['-L', session, ...args], { encoding: 'utf8' })
  const shell = [
    'env',
    'PS1=$ ',
    'TERM=screen',
    'npm_config_loglevel=error',
    'bash',
    '--norc',
    '--noprofile',
  ]
  const size = ['-x', String(columns), '-y', '50']
  tmux('new-session', '-d', '-s', 'shown', ...size, '-c', root, ...shell)
  try {
    tmux('set-option', '-t', 'shown', 'history-limit', '5000')
    if (beside !== undefined) {
      tmux('new-window', '-d', '-t', 'shown', '-n', 'beside', '-c', root, ...shell)
      tmux('send-keys', '-t', 'shown:beside', beside, 'Enter')
      await pause(8000)
    }
    tmux(
      'send-keys',
      '-t',
      'shown:0',
      `clear; ${command}; tmux -L ${session} wait-for -S done`,
      'Enter',
    )
    execFileSync('tmux', ['-L', session, 'wait-for', 'done'], { timeout: LONGEST })
    await pause(300)
    const text = tmux('capture-pane', '-p', '-t', 'shown:0', '-S', '-')
    return `$ ${command}\n${tidy(text)}\n`
  } finally {
    if (beside !== undefined) {
      tmux('send-keys', '-t', 'shown:beside', 'C-c')
      await pause(2000)
    }
    tmux('kill-server')
  }
}

/** Without the line that was typed, the prompt, and what is of this machine. */
function tidy(text) {
  const lines = text.split('\n').map((line) => line.trimEnd())
  const typed = lines.findIndex((line) => line.includes('wait-for'))
  const shown = lines.slice(typed + 1).filter((line) => line !== '$' && !line.includes('wait-for'))
  return shown
    .join('\n')
    .replaceAll(root, '')
    .replaceAll(process.env.HOME ?? root, '~')
    .trim()
}
