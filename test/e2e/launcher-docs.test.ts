import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { fileURLToPath } from 'node:url'
import { text as readAll } from 'node:stream/consumers'
import { jest } from '@jest/globals'

jest.setTimeout(60_000)

const root = fileURLToPath(new URL('../../', import.meta.url))
const page = readFileSync(`${root}docs/launcher.md`, 'utf8')

/** The commands whose output the page shows; test/docs runs all others. */
const examples = Array.from(
  page.matchAll(/^```sh\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```$/gm),
  ([, command, output]) => ({ command: command!, output: output! }),
)

/** What differs from run to run and from host to host. */
function withoutChance(output: string): string {
  return output
    .replaceAll(root, '/')
    .replaceAll(` on ${hostname()}\n`, ' on host\n')
    .replaceAll(/\d+(\.\d+)?/g, 'N')
    .replaceAll(/ +/g, ' ')
    .trim()
}

it.each(examples)(
  'docs/launcher.md shows what this prints: $command',
  async ({ command, output }) => {
    const shell = spawn('bash', ['-euo', 'pipefail', '-c', command], {
      cwd: root,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const [stdout, stderr, [code]] = await Promise.all([
      readAll(shell.stdout),
      readAll(shell.stderr),
      once(shell, 'close') as Promise<[number | null]>,
    ])
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout, stderr })
    const seen = withoutChance(`${stdout}\n${stderr}`)
    for (const line of output.split('\n')) expect(seen).toContain(withoutChance(line))
  },
)
