import { parentPort } from 'node:worker_threads'
import { check, type Checks } from './safetensors/checks.ts'
import type { TensorValues } from './safetensors/dtypes.ts'

// Checks the values of a save while another thread trains.
let checks: Checks | undefined
parentPort!.on('message', ({ values, isFirst }: { values: TensorValues; isFirst: boolean }) => {
  checks = check(values, isFirst ? undefined : checks)
  parentPort!.postMessage(checks)
})
