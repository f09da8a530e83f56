import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { makeFolders } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'
import {
  reasonOf,
  runTool,
  setupError,
  type Tool,
  type ToolContext,
  type ToolOutput,
} from './tool.ts'
import type { Wheel } from './packages.ts'

/** Revision of tsrun's additions to the binding. Installations of another revision are rebuilt. */
export const BINDING_REVISION = 9

/** Sources that are compiled into the binding, or into separate libraries. */
const native = fileURLToPath(new URL('src/setup/native', packageFolder))
const QUIET = 'libtsrun_quiet.so'
const ENTRY = 'tsrun_binding_entry'
/** Instruction sets of the kernels. `native/load.h` loads the first one that the CPU supports. */
const INSTRUCTIONS = {
  avx512: ['-mavx512f', '-mavx512dq', '-mavx512vl', '-mavx512bw', '-mavx2', '-mfma'],
  avx2: ['-mavx2', '-mfma'],
  any: [],
}
const GENERAL = ['-O2', '-DNDEBUG', '-std=c++17', '-fPIC', '-shared', '-w']
/** Flags for identical results with every instruction set. */
const EXACT = ['-ffp-contract=off', '-DEIGEN_FAST_MATH=0']
const FRAMEWORK = '-l:libtensorflow_framework.so.2'

/** Compiles a shared library in a folder. */
type Make = (cwd: string, ...args: readonly string[]) => Promise<ToolOutput>

/**
 * Compiles the binding's sources in the npm package, together with those in `native`, against a wheel.
 * Writes the result where the package expects the binding.
 *
 * @param folder - the folder of the npm package
 * @param headers - the folder of Node's headers
 * @returns why the binding lacks tsrun's kernels; undefined if it has them
 * @throws ERR_TSR_SETUP
 */
export async function compileBinding(
  context: ToolContext,
  { command }: Tool,
  folder: string,
  headers: string,
  wheel: Wheel,
): Promise<string | undefined> {
  const target = join(folder, 'lib/napi-v8')
  makeFolders(target)
  const include = join(wheel.folder, 'include')
  const paths = [`-L${wheel.folder}`, `-Wl,-rpath,${wheel.folder}`]

  const make: Make = (cwd, ...args) =>
    runTool(context, command, [...GENERAL, `-I${include}`, ...args], { cwd })
  const quiet = [join(native, 'quiet.cc'), '-o', QUIET, '-Wl,-z,initfirst']
  const silenced = await make(target, ...quiet, ...paths, FRAMEWORK)
  // If the wheel lacks the function that quiet.cc calls, TensorFlow prints its log messages.
  const first = silenced.ok ? [`-L${target}`, '-Wl,--no-as-needed', `-l:${QUIET}`] : []

  const compile = (...added: readonly string[]) =>
    make(
      folder,
      '-DNAPI_VERSION=8',
      ...[headers, '..', '.'].map((path) => `-I${path}`),
      'binding/tfjs_backend.cc',
      'binding/tfjs_binding.cc',
      ...added,
      '-o',
      join(target, 'tfjs_binding.node'),
      ...first,
      ...paths,
      '-Wl,-rpath,$ORIGIN',
      '-l:libtensorflow_cc.so.2',
      FRAMEWORK,
    )
  const ours = [
    join(native, 'passes.cc'),
    `-I${native}`,
    '-fno-access-control',
    `-Dnapi_register_module_v1=${ENTRY}`,
    `-DBINDING_ENTRY=${ENTRY}`,
  ]
  const [whole, kernels] = await Promise.all([compile(...ours), compileKernels(make, target)])
  // If tsrun's additions do not compile with this TensorFlow, compile the binding without them.
  const output = whole.ok ? whole : await compile()
  if (output.ok) {
    const failed = [whole, kernels].find(({ ok }) => !ok)
    return failed && reasonOf(failed)
  }
  throw setupError(
    `${command} could not compile the binding (${reasonOf(output)}): the version of the wheel may not fit ` +
      '(2.16 to 2.21 do), or the compiler may be too old for C++17: name others with --wheel ' +
      `and CXX; all output is in ${context.log}`,
  )
}

/** Skips instruction sets that the compiler does not support. @returns the output of a successful build */
async function compileKernels(make: Make, target: string): Promise<ToolOutput> {
  const outputs: ToolOutput[] = []
  for (const [name, flags] of Object.entries(INSTRUCTIONS)) {
    const options = [...EXACT, '-fvisibility=hidden', ...flags]
    const library = `libtsrun_kernels_${name}.so`
    outputs.push(await make(target, ...options, join(native, 'kernels.cc'), '-o', library))
  }
  return outputs.find(({ ok }) => ok) ?? outputs.at(-1)!
}
