import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runToEnd } from './child.mjs'

/**
 * Compiles a C program with `cc -O3`.
 *
 * @param {URL} source
 * @param {string} folder - for the program
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<string | undefined>} the program; undefined, with a word on stderr, without cc
 */
export async function compile(source, folder, env = process.env) {
  const program = join(folder, basename(source.pathname, '.c'))
  const { ok, reason, output } = await runToEnd(
    'cc',
    ['-O3', '-o', program, fileURLToPath(source)],
    { env },
  )
  if (ok) return program
  console.error(
    `skipped: no C program beside ours (cc: ${output.trim().split('\n').at(-1) || reason})`,
  )
  return undefined
}
