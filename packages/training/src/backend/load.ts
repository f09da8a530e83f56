import { tsrError } from '@tsrun/core'
import type { Backend, BackendName } from './backend.ts'
import { loadCpu } from './cpu.ts'
import { loadWasm } from './wasm.ts'

const loaders: Readonly<Record<BackendName, () => Promise<void>>> = { wasm: loadWasm, cpu: loadCpu }

/**
 * Loads the tensor backend `name` and makes it current; every tensor of this process lives there.
 *
 * `auto` takes the fastest one that is set up: wasm.
 *
 * @param name - default: the variable TSRUN_BACKEND, else `auto`
 * @throws ERR_TSR_ARGUMENT for an unknown name, ERR_TSR_BACKEND when it cannot be loaded
 */
export async function loadBackend(
  name: 'auto' | BackendName | undefined = process.env['TSRUN_BACKEND'] as 'auto' | undefined,
): Promise<Backend> {
  const wanted = name ?? 'auto'
  const chosen = wanted === 'auto' ? 'wasm' : wanted
  if (!Object.hasOwn(loaders, chosen)) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'backend (TSRUN_BACKEND)',
      value: JSON.stringify(chosen),
      expected: `one of auto, ${Object.keys(loaders).join(', ')}`,
    })
  }
  try {
    await loaders[chosen]()
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw tsrError('ERR_TSR_BACKEND', { backend: chosen, reason }, { cause })
  }
  return { name: chosen }
}
