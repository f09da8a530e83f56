import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { deviceEnvironment, type Devices } from '../job/devices.ts'
import { packageFolder } from '../job/package.ts'
import { LONGEST_START } from '../setup/proof.ts'
import type { BackendFacts } from './facts.ts'
import { resolveFrom, run, type RunOptions } from './programs.ts'

/** Milliseconds for loading a backend and a step. */
const LIMIT = 120_000
/** On GPUs TensorFlow may compile its kernels first. */
const limitOf = (name: string, gpus: readonly string[]): number =>
  name === 'tensorflow' && gpus.length > 0 ? LONGEST_START : LIMIT
const probe = fileURLToPath(new URL('dist/probe.js', packageFolder))

interface ProbeOptions {
  readonly hasTensorFlow: boolean
  readonly devices: Devices
  readonly signal: AbortSignal
}

/** Trains a step with every backend that is there, each in a process of its own, one by one. */
export async function probeBackends(
  env: NodeJS.ProcessEnv,
  cwd: string,
  { hasTensorFlow, devices, signal }: ProbeOptions,
): Promise<BackendFacts[]> {
  const places = [join(cwd, 'any.js'), import.meta.url]
  const training = resolveFrom(places, '@tsrun/training')
  if (training === undefined) {
    const reason = 'the package @tsrun/training is not installed'
    return [{ name: 'wasm', works: false, reason, missing: true }]
  }
  // as the only rank of this host gets it
  const rank = { ...env, ...deviceEnvironment(devices, env, 0, 1) }
  const facts: BackendFacts[] = []
  for (const name of ['wasm', 'cpu', 'tensorflow', 'webgpu']) {
    const reason = missingPart(name, training, places, hasTensorFlow)
    facts.push(
      reason === undefined
        ? await probeBackend(name, training, {
            env: rank,
            limit: limitOf(name, devices.gpus),
            signal,
          })
        : { name, works: false, reason, missing: true },
    )
  }
  return facts
}

function missingPart(
  name: string,
  training: string,
  places: readonly string[],
  hasTensorFlow: boolean,
): string | undefined {
  if (name === 'tensorflow' && !hasTensorFlow) return 'not set up'
  if (name !== 'webgpu') return undefined
  const found = resolveFrom([training, ...places], 'webgpu')
  return found === undefined ? 'the package webgpu is not installed' : undefined
}

async function probeBackend(
  name: string,
  training: string,
  options: RunOptions,
): Promise<BackendFacts> {
  const args = [probe, name, pathToFileURL(training).href]
  const { stdout, stderr, failure } = await run(process.execPath, args, options)
  const line = stdout.split('\n').findLast((text) => text.startsWith('{'))
  if (line !== undefined) return { name, ...(JSON.parse(line) as object) } as BackendFacts
  const said = stderr.trim().split('\n').at(-1) ?? ''
  const reason = [failure ?? 'it said nothing', said].filter(Boolean).join(': ')
  return { name, works: false, reason, missing: false }
}
