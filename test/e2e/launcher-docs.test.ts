import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { fileURLToPath } from 'node:url'
import { text as readAll } from 'node:stream/consumers'

const root = fileURLToPath(new URL('../../', import.meta.url))
const pages = ['docs/launcher.md', 'docs/several-hosts.md', 'docs/deploy/slurm.md']

/** The commands whose output the pages show, but for those with a reason why not; test/docs runs all others. */
const examples = pages.flatMap((page) =>
  Array.from(
    readFileSync(`${root}${page}`, 'utf8').matchAll(
      /(?<!-->\n\n)^```sh\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```$/gm,
    ),
    ([, command, output]) => ({ page, command: command!, output: output! }),
  ),
)

/** What differs from run to run and from host to host. */
function withoutChance(output: string): string {
  return output
    .replaceAll(root, '/')
    .replaceAll(new RegExp(`(?<= )${hostname()}(?=[ \\n])`, 'g'), 'host')
    .replaceAll(/\d{8}-\d{6}-[0-9a-f]{6}/g, 'RUN')
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4,12}){4}/g, 'UUID')
    .replaceAll(/\d+(\.\d+)?/g, 'N')
    .replaceAll(/ +/g, ' ')
    .trim()
}

it.each(examples)('$page shows the output of $command', async ({ command, output }) => {
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
})
