import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { tsrError, type TensorFlowRequest } from '@tsrun/core'

export const setupHelp = `tsrun setup tensorflow [flags]

Builds the Node binding of TensorFlow for the backend 'tensorflow', in a folder of the user: the npm
package @tensorflow/tfjs-node, a TensorFlow wheel in a private virtual environment, the binding
compiled against it; then proves that it computes. What is there already is left as it is. npm and
pip are used as you have configured them.

  --gpu          for NVIDIA GPUs: @tensorflow/tfjs-node-gpu and tensorflow[and-cuda]
  --wheel DIR    take TensorFlow from DIR: a folder of .whl files, or one into which it was installed
  --python PATH  use the TensorFlow of this Python or, if it has none, make the environment with it
  --official     take the libraries that the npm package itself downloads (TensorFlow 2.9) instead
  --check        only tell whether TensorFlow is set up and works: exit code 0, else 1
  --help         show this page

TSRUN_HOME names the folder; default: tsrun in the cache folder of the user (~/.cache).
`

export interface SetupCommand {
  readonly action: 'help' | 'check' | 'install'
  readonly request: TensorFlowRequest
}

/** @param argv - what follows `tsrun setup` @throws ERR_TSR_USAGE */
export function readSetupArguments(argv: readonly string[], cwd: string): SetupCommand {
  const { values, positionals } = parse(argv)
  const { gpu = false, official = false, check = false, help = false } = values
  const request: TensorFlowRequest = {
    gpu,
    official,
    wheel: existing('--wheel', values.wheel, cwd),
    python: existing('--python', values.python, cwd),
  }
  if (help) return { action: 'help', request }
  const [what, ...more] = positionals
  if (what !== 'tensorflow' || more.length > 0) {
    const given = what === undefined ? 'nothing' : positionals.join(' ')
    throw usage(`tsrun setup sets up tensorflow, and not ${given} (tsrun setup --help)`)
  }
  const sources = [values.wheel && '--wheel', values.python && '--python', official && '--official']
  const given = sources.filter(Boolean)
  if (given.length > 1) throw usage(`${given.join(' and ')} exclude each other`)
  return { action: check ? 'check' : 'install', request }
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        gpu: { type: 'boolean' },
        wheel: { type: 'string' },
        python: { type: 'string' },
        official: { type: 'boolean' },
        check: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    })
  } catch (error) {
    const [problem] = (error as Error).message.split('. ')
    throw usage(`tsrun setup: ${problem!} (tsrun setup --help)`)
  }
}

function existing(flag: string, path: string | undefined, cwd: string): string | null {
  if (path === undefined) return null
  const full = resolve(cwd, path)
  if (statSync(full, { throwIfNoEntry: false }) === undefined) {
    throw usage(`${flag} names ${path}, which does not exist`)
  }
  return full
}

function usage(problem: string): Error {
  return tsrError('ERR_TSR_USAGE', { problem })
}
