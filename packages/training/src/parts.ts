// What packages that extend this one need beside its public names. It changes without notice: they
// depend on the same version of it.
export { describeNames } from './checkpoint/safetensors/read.ts'
export { ownerOfState } from './checkpoint/owners.ts'
export { describe } from './model/describe.ts'
export { partsOf } from './optim/flat-gradients.ts'
export {
  compareParameters,
  compareReplicas,
  describeParameters,
} from './parallel/gradients/replicas.ts'
export { checkBackendBlocks, checkGroup } from './parallel/requirements.ts'
export { registerGradients } from './tfjs/register-gradients.ts'
