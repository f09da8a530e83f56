import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { isTsrError, type TensorFlowRequest } from '@tsrun/core'
import { usageError } from '../args/readers.ts'
import type { Interruption } from '../protocol/nodes.ts'
import { checkTensorFlow, setUpTensorFlow } from '../setup/setup.ts'
import type { AddCommand, CommandContext } from './context.ts'

const FAILED = 1

/** @param isCheck - only check an existing installation */
export type SetupHandler = (
  request: TensorFlowRequest,
  isCheck: boolean,
  sha256: readonly string[],
) => Promise<void>

/** `tsrun setup tensorflow` @param cwd - base of relative paths */
export function addSetup(cwd: string, setUp: SetupHandler): AddCommand {
  return (parser) =>
    parser.command(
      'setup <what>',
      'install what a backend needs: tsrun setup tensorflow',
      (own) =>
        own
          .usage(
            '$0 setup tensorflow [flags]\n\nBuilds the Node binding of TensorFlow for the backend tensorflow: it installs the ' +
              'npm package @tensorflow/tfjs-node and a TensorFlow wheel (in a virtual environment ' +
              'of its own) and compares their hashes with those that tsrun knows, compiles the binding against the wheel, and checks that the result ' +
              'computes. Nothing is done where that is already in place. npm and pip are used as ' +
              'you have configured them.',
          )
          .positional('what', {
            choices: ['tensorflow'],
            demandOption: true,
            describe: 'what to install',
          })
          .options({
            gpu: {
              type: 'boolean',
              describe: 'for NVIDIA GPUs: @tensorflow/tfjs-node-gpu and tensorflow[and-cuda]',
            },
            wheel: {
              type: 'string',
              requiresArg: true,
              describe:
                'take TensorFlow from this folder: one of .whl files, or one into which it was installed',
            },
            python: {
              type: 'string',
              requiresArg: true,
              describe:
                'use the TensorFlow of this Python or, if it has none, make the environment with it',
            },
            official: {
              type: 'boolean',
              describe:
                'use the libraries that the npm package downloads (TensorFlow 2.9) instead of a wheel',
            },
            sha256: {
              type: 'string',
              requiresArg: true,
              describe:
                'demand this SHA-256 of a download of --official for which tsrun knows none (HASH,HASH for several)',
            },
            check: {
              type: 'boolean',
              describe:
                'only check whether TensorFlow is set up and works: exit code 0, otherwise 1',
            },
          })
          .implies('sha256', 'official')
          .conflicts({ wheel: ['python', 'official'], python: 'official' })
          .epilogue('TSRUN_HOME names the folder; the default is ~/.cache/tsrun.')
          .version(false),
      (argv) => {
        const request: TensorFlowRequest = {
          gpu: argv.gpu === true,
          official: argv.official === true,
          wheel: existing('--wheel', argv.wheel, cwd),
          python: existing('--python', argv.python, cwd),
        }
        return setUp(request, argv.check === true, hashesOf(argv.sha256))
      },
    )
}

/** Installs or checks TensorFlow, and reports progress. */
export async function setUp(
  request: TensorFlowRequest,
  isCheck: boolean,
  sha256: readonly string[],
  context: CommandContext,
): Promise<void> {
  const { env, console, interrupts } = context
  const signal = interrupts.stop
  const say = (sentence: string): void => {
    console.print('stdout', `tsrun setup: ${sentence}\n`)
  }
  try {
    if (isCheck) context.exitCode = (await checkTensorFlow({ env, signal, say })) ? 0 : FAILED
    else await setUpTensorFlow({ env, signal, say, sha256 }, request)
  } catch (error) {
    if (signal.aborted) {
      const message = 'interrupted; the previous installation, if there was one, is unchanged'
      console.write('stderr', `tsrun setup: ${message}\n`)
      context.exitCode = (signal.reason as Interruption).exitCode
      return
    }
    if (!isTsrError(error) || error.code !== 'ERR_TSR_SETUP') throw error
    console.write('stderr', `tsrun: ${error.message}\n`)
    context.exitCode = FAILED
  }
}

function hashesOf(given: string | undefined): string[] {
  const hashes = given?.toLowerCase().split(',') ?? []
  const wrong = hashes.find((hash) => !/^[0-9a-f]{64}$/.test(hash))
  if (wrong === undefined) return hashes
  throw usageError(`--sha256 is ${wrong}; expected 64 hexadecimal digits`)
}

function existing(flag: string, path: string | undefined, cwd: string): string | null {
  if (path === undefined) return null
  const full = resolve(cwd, path)
  if (statSync(full, { throwIfNoEntry: false }) !== undefined) return full
  throw usageError(`${flag} names ${path}, which does not exist`)
}
