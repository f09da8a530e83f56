import { isAvailable } from '@tsrun/native'
import { describeWorkerDeath } from './support/worker-death.ts'

const ways = ['flood', 'blocked', 'awaited', 'later']

describeWorkerDeath('node', ways)
if (isAvailable().available) describeWorkerDeath('tcp', ways)
