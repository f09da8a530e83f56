// Internals for the packages that extend this one. They change without notice: those packages depend on
// the same version.
export { runForward } from './autograd/record.ts'
export { currentBackend, isHostAccessible, repeated } from './backend/current.ts'
export { holdTensor } from './backend/held-values.ts'
export { onAllRanks } from './checkpoint/coordination.ts'
export { gatherModel } from './checkpoint/plan.ts'
export { checkPlace, ownersOf } from './checkpoint/owners.ts'
export { copyPieces } from './checkpoint/piece.ts'
export { fillFrom, openModelFiles } from './checkpoint/pretrained.ts'
export { writeDurably } from './checkpoint/safetensors/durable.ts'
export { exampleBatch } from './data/batches.ts'
export { datasetError, fileProblem } from './data/dataset.ts'
export { endsOfShare, epochOrder, orderRules, shareRule, type Share } from './data/order.ts'
export { describe } from './model/describe.ts'
export { isRepeatable, modulesOf, ofKind } from './model/module.ts'
export { causalAttention, checkHeads, isAttention, MASKED } from './nn/attention.ts'
export { dropoutRate } from './nn/dropout.ts'
export { hasPositions, Head, inOrder, tableParameter } from './nn/embedding.ts'
export { checkRange } from './nn/initialize.ts'
export { ModuleChain } from './nn/sequential.ts'
export { partsOf } from './optim/flat-gradients.ts'
export {
  compareParameters,
  compareReplicas,
  describeParameters,
} from './parallel/gradients/replicas.ts'
export { checkBackendBlocks, checkGroup } from './parallel/requirements.ts'
export {
  isSequenceParallel,
  isVocabParallelHead,
  type VocabParallelHead,
} from './parallel/tensor/layers.ts'
export { dtypeRule, fits, sizeOf } from './tfjs/host-arrays.ts'
export { registerGradients } from './tfjs/register-gradients.ts'
