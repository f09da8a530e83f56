export { diagnose } from '../../../packages/distributed/src/diagnosis/diagnosis.ts'
export { Journal } from '../../../packages/distributed/src/diagnosis/journal.ts'
export { decodeNotice, encodeNotice } from '../../../packages/distributed/src/diagnosis/notices.ts'
export {
  type DiagnosisSettings,
  quietDiagnosis,
  readDiagnosis,
} from '../../../packages/distributed/src/diagnosis/settings.ts'
export { createEngine, type Engine } from '../../../packages/distributed/src/engine/engine.ts'
export {
  decodeFault,
  encodeFault,
  faultError,
} from '../../../packages/distributed/src/engine/fault.ts'
export { Credit } from '../../../packages/distributed/src/engine/messages/credit.ts'
export {
  EAGER_LIMIT,
  type FrameHeader,
  frameKinds,
  HEADER_BYTES,
  readHeader,
  spaces,
  writeHeader,
} from '../../../packages/distributed/src/engine/messages/frame.ts'
export { EngineMemory } from '../../../packages/distributed/src/engine/messages/memory.ts'
export { streamKey } from '../../../packages/distributed/src/engine/messages/stream.ts'
export { createEngineDriver } from '../../../packages/distributed/src/runners/engine-driver.ts'
export { prepareTransport } from '../../../packages/distributed/src/runners/open-transport.ts'
export { openStatus } from '../../../packages/distributed/src/runners/status-page.ts'
export type { EpochContext } from '../../../packages/distributed/src/shared/epoch-run.ts'
export { createEpochs, Epochs } from '../../../packages/distributed/src/shared/epochs.ts'
export { WindowRun } from '../../../packages/distributed/src/shared/window-run.ts'
