import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { flag, isTsrError, type TensorFlowRequest } from '@tsrun/core'
import {
  type CommandContext,
  declareCommand,
  type Flags,
  usageError,
  type ValuesOf,
} from '@tsrun/launcher/host'
import { blasComponent } from '../setup/blas.ts'
import { setUpComponent } from '../setup/setup.ts'
import { tensorflowComponent } from '../setup/tensorflow.ts'

const FAILED = 1

const flags = {
  gpu: {
    reads: flag,
    description: 'for NVIDIA GPUs: @tensorflow/tfjs-node-gpu and tensorflow[and-cuda]',
  },
  wheel: {
    excludes: ['python', 'official'],
    description: 'take TensorFlow from this folder, which holds .whl files or an unpacked wheel',
  },
  python: {
    excludes: ['official'],
    description:
      'use the TensorFlow of this Python or, if it has none, make the environment with it',
  },
  official: {
    reads: flag,
    description:
      'use the libraries that the npm package downloads (TensorFlow 2.9) instead of a wheel',
  },
  check: {
    reads: flag,
    description: 'only check whether it is set up and works: exit code 0, otherwise 1',
  },
} as const satisfies Flags

/** `tsrun setup tensorflow` and `tsrun setup blas` */
export const command = declareCommand({
  usage:
    '$0 setup tensorflow [flags]\n$0 setup blas [--check]\n\nBuilds the Node binding of TensorFlow for the backend tensorflow: it installs the ' +
    'npm package @tensorflow/tfjs-node and a TensorFlow wheel (in a virtual environment ' +
    'of its own) and compares their hashes with those that tsrun knows, compiles the binding against the wheel, and checks that the result ' +
    'computes. tsrun setup blas installs OpenBLAS for the backend wasm with pip, in seconds and ' +
    'without a compiler. Nothing is done where that is already in place. npm and pip are used as ' +
    'you have configured them. TSRUN_HOME names the folder; the default is ~/.cache/tsrun.',
  argument: { choices: ['tensorflow', 'blas'], description: 'what to install' },
  flags,
  run: setUp,
})

export function requestOf(
  { gpu, official, wheel, python }: ValuesOf<typeof flags>,
  cwd: string,
): TensorFlowRequest {
  return {
    gpu: gpu === true,
    official: official === true,
    wheel: existing('--wheel', wheel, cwd),
    python: existing('--python', python, cwd),
  }
}

function componentOf(what: string, values: ValuesOf<typeof flags>, cwd: string) {
  if (what === 'tensorflow') return tensorflowComponent(requestOf(values, cwd))
  const others = ['gpu', 'wheel', 'python', 'official'] as const
  const given = others.find((name) => values[name] !== undefined)
  if (given === undefined) return blasComponent
  throw usageError(`--${given} is only for tsrun setup tensorflow`)
}

async function setUp(
  values: ValuesOf<typeof flags>,
  context: CommandContext,
  [what = '']: readonly string[],
): Promise<void> {
  const { env, cwd, console, interrupts } = context
  const component = componentOf(what, values, cwd)
  const signal = interrupts.stop
  const say = (sentence: string): void => {
    console.print('stdout', `tsrun setup: ${sentence}\n`)
  }
  try {
    const tools = { env, signal, say }
    const works = await setUpComponent(tools, component, values.check === true)
    context.exitCode = works ? 0 : FAILED
  } catch (error) {
    if (signal.aborted) {
      const message = 'interrupted; the previous installation, if there was one, is unchanged'
      console.write('stderr', `tsrun setup: ${message}\n`)
      signal.throwIfAborted()
    }
    if (!isTsrError(error) || error.code !== 'ERR_TSR_SETUP') throw error
    console.write('stderr', `tsrun: ${error.message}\n`)
    context.exitCode = FAILED
  }
}

function existing(flag: string, path: string | undefined, cwd: string): string | null {
  if (path === undefined) return null
  const full = resolve(cwd, path)
  if (statSync(full, { throwIfNoEntry: false }) !== undefined) return full
  throw usageError(`${flag} names ${path}, which does not exist`)
}
