export { BINDING_REVISION } from '../../../packages/launcher/src/setup/binding.ts'
export { compareDownloads } from '../../../packages/launcher/src/setup/packages.ts'
export {
  npmLock,
  npmManifest,
  OFFICIAL_ARCHIVES,
  OPENBLAS_VERSION,
  PINNED_MACHINES,
  PINNED_PYTHONS,
  requirements,
  TENSORFLOW_VERSION,
} from '../../../packages/launcher/src/setup/pins.ts'
export { gpusIn, whyCpu } from '../../../packages/launcher/src/setup/proof.ts'
export {
  checkNode,
  npmFailure,
  pipFailure,
  reasonOf,
  roomAdvice,
  runTool,
  sizeOf,
  testOptions,
  type ToolContext,
} from '../../../packages/launcher/src/setup/tool.ts'
