// The systems that are measured, ours and its peers, and how their ranks are started.
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { findTorchPython, runRanks, runToEnd, torchrunLine, tsrunLine } from '../programs.mjs'

const [tsrunRank, torchRank, openMpiRank] = [
  'tsrun-rank.mjs',
  'torch_rank.py',
  'openmpi-rank.c',
].map((file) => fileURLToPath(new URL(`ranks/${file}`, import.meta.url)))

/** Our transports, each measured by itself; tls: with --tls. */
export const transports = /** @type {const} */ ([
  'shared-memory',
  'tcp',
  'tcp-tls',
  'node',
  'node-tls',
])

export const peerNames = /** @type {const} */ (['torch', 'openmpi'])

/**
 * Something that can be measured: ours, or a peer over one of its transports.
 *
 * @typedef {object} System
 * @property {'tsrun' | 'torch' | 'openmpi'} system
 * @property {(typeof transports)[number] | 'gloo'} transport
 * @property {'worker' | 'inline' | null} engine - null where there is no such choice
 * @property {(ranks: number, output: string, steps: readonly string[]) => CommandLine} commandLine
 *
 * @typedef {import('../programs.mjs').CommandLine} CommandLine
 *
 * @typedef {object} Found
 * @property {System[]} systems
 * @property {string} [skipped] - the reason if there are none
 * @property {string} [version]
 *
 * @typedef {object} Sample
 * @property {import('./plan.mjs').Operation} op
 * @property {number} count
 * @property {number[]} us - one time for each repetition, the maximum over the ranks
 */

/** @param {Pick<System, 'system' | 'transport' | 'engine'>} system */
export function nameOf({ system, transport, engine }) {
  return [system, transport, engine].filter((part) => part !== null).join(' ')
}

/**
 * Starts the ranks of a system and reads what its rank 0 measured.
 *
 * @param {System} system
 * @param {number} ranks
 * @param {readonly string[]} steps - in the form of `stepArgument`
 * @returns {Promise<Sample[]>}
 * @throws ERR_BENCH_RUN
 */
export async function measure(system, ranks, steps) {
  const text = await runRanks(nameOf(system), (output) => system.commandLine(ranks, output, steps))
  const lines = text.trimEnd().split('\n')
  return lines.map((line) => /** @type {Sample} */ (JSON.parse(line)))
}

/**
 * Ours: one system for each transport and engine that fit together.
 *
 * @param {readonly (typeof transports)[number][]} wanted
 * @param {readonly ('worker' | 'inline')[]} engines
 * @returns {System[]}
 */
export function tsrunSystems(wanted, engines) {
  return wanted.flatMap((transport) => {
    const name = transport.replace('-tls', '')
    const env = { TSRUN_TLS: name === transport ? '0' : '1' }
    return engines
      .filter((engine) => name !== 'node' || engine === 'worker')
      .map((engine) => ({
        system: /** @type {const} */ ('tsrun'),
        transport,
        engine,
        commandLine: (ranks, output, steps) => ({
          ...tsrunLine(ranks, tsrunRank, [output, name, engine, ...steps]),
          env,
        }),
      }))
  })
}

/**
 * Finds the peers that are installed, and says on stderr why others are skipped.
 *
 * @param {readonly (typeof peerNames)[number][]} names
 * @param {string} folder - for what is compiled
 */
export async function findPeers(names, folder) {
  const found = await Promise.all(
    names.map((name) => (name === 'torch' ? findTorch() : findOpenMpi(folder))),
  )
  for (const { skipped } of found) {
    if (skipped !== undefined) console.error(`skipped: ${skipped}`)
  }
  return {
    systems: found.flatMap(({ systems }) => systems),
    versions: Object.fromEntries(
      found.flatMap(({ version }, i) => (version === undefined ? [] : [[names[i], version]])),
    ),
    skipped: names.filter((_, i) => found[i]?.skipped !== undefined),
  }
}

/**
 * PyTorch's gloo, if TSRUN_BENCH_PYTHON names a Python that has torch.
 *
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<Found>}
 */
export async function findTorch(env = process.env) {
  const found = await findTorchPython(env)
  if ('skipped' in found) return { systems: [], skipped: found.skipped }
  /** @type {System} */
  const gloo = {
    system: 'torch',
    transport: 'gloo',
    engine: null,
    commandLine: (ranks, output, steps) =>
      torchrunLine(found.python, ranks, torchRank, [output, ...steps], env),
  }
  return { systems: [gloo], version: found.version }
}

/**
 * Open MPI over TCP and over shared memory, if `mpicc` and `mpirun` are on the PATH.
 *
 * @param {string} folder - for the compiled program
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<Found>}
 */
export async function findOpenMpi(folder, env = process.env) {
  const version = await runToEnd('mpirun', ['--version'], { env })
  if (!version.output.includes('Open MPI')) {
    return { systems: [], skipped: 'no Open MPI (no mpirun of Open MPI on the PATH)' }
  }
  const program = join(folder, 'openmpi-rank')
  const compiled = await runToEnd('mpicc', ['-O3', '-o', program, openMpiRank], { env })
  if (!compiled.ok) {
    const why = compiled.output.trimEnd().split('\n').at(-1) || compiled.reason
    return { systems: [], skipped: `no Open MPI (mpicc: ${why})` }
  }
  return {
    systems: [openMpi(program, 'tcp', 'tcp,self'), openMpi(program, 'shared-memory', 'vader,self')],
    version: /Open MPI\) (\S+)/.exec(version.output)?.[1] ?? 'unknown',
  }
}

/**
 * @param {string} program
 * @param {'tcp' | 'shared-memory'} transport
 * @param {string} btl - the components of Open MPI that carry the bytes
 * @returns {System}
 */
function openMpi(program, transport, btl) {
  const component = ['--mca', 'pml', 'ob1', '--mca', 'btl', btl]
  const loopback = ['--mca', 'btl_tcp_if_include', '127.0.0.1/8']
  const placement = ['--allow-run-as-root', '--oversubscribe', '--bind-to', 'none']
  return {
    system: 'openmpi',
    transport,
    engine: null,
    commandLine: (ranks, output, steps) => ({
      command: 'mpirun',
      args: [...placement, ...component, ...loopback]
        .concat('-n', String(ranks), program, output)
        .concat(steps),
    }),
  }
}
