import type { BackendFacts } from './backend.ts'
import { registerCpu, tf } from './tfjs.ts'

/** Plain JavaScript kernels: slow, everywhere available, the reference for the others. */
export async function loadCpu(): Promise<BackendFacts> {
  registerCpu()
  if (!(await tf.setBackend('cpu'))) throw new Error('it could not be initialised')
  silenceHint()
  return { device: 'CPU', threads: 1 }
}

/** The first tensor of the cpu backend prints an advertisement for tfjs-node, except in production mode. */
function silenceHint(): void {
  const production = tf.env().getBool('PROD')
  tf.env().set('PROD', true)
  tf.scalar(0).dispose()
  tf.env().set('PROD', production)
}
