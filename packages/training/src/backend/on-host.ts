import { reachesTensors } from './bridge/select.ts'
import { registerCpu, tf } from './tfjs.ts'

/**
 * Runs a computation that reads values at once, and leaves no tensor, on a backend where that is
 * possible: the cpu backend where the current one keeps tensors on a device.
 */
export function onHostBackend(compute: () => void): void {
  if (reachesTensors()) {
    compute()
    return
  }
  const before = tf.getBackend()
  registerCpu()
  const production = tf.env().getBool('PROD')
  tf.env().set('PROD', true)
  // Both backends are there: the change is done when the call returns.
  void tf.setBackend('cpu')
  try {
    compute()
  } finally {
    void tf.setBackend(before)
    tf.env().set('PROD', production)
  }
}
