import { isAvailable } from '@tsrun/native'
import { describeWorkerDeath } from './support/worker-death.ts'

// All ways with every transport are in worker-death.nightly.test.ts.
describeWorkerDeath(isAvailable().available ? 'tcp' : 'node', ['flood', 'blocked'])
