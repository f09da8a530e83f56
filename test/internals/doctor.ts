export { canTrain, reportText } from '../../packages/doctor/src/commands/doctor.ts'
export { envText } from '../../packages/doctor/src/commands/env.ts'
export { requestOf } from '../../packages/doctor/src/commands/setup.ts'
export { judge, type Finding } from '../../packages/doctor/src/host/checks.ts'
export type { HostReport } from '../../packages/doctor/src/host/environment.ts'
export type { Facts } from '../../packages/doctor/src/host/gather.ts'
export { answerLinks, measureLink, SECRET_BYTES } from '../../packages/doctor/src/hosts/agent.ts'
export { remarksOf, surveyText } from '../../packages/doctor/src/hosts/report.ts'
export { rounds, type Survey } from '../../packages/doctor/src/hosts/survey.ts'
export { findBlas } from '../../packages/doctor/src/host/machine.ts'
export { BINDING_REVISION } from '../../packages/doctor/src/setup/binding.ts'
export { compareDownloads } from '../../packages/doctor/src/setup/packages.ts'
export {
  npmLock,
  npmManifest,
  OFFICIAL_ARCHIVES,
  OPENBLAS_VERSION,
  PINNED_MACHINES,
  PINNED_PYTHONS,
  requirements,
  TENSORFLOW_VERSION,
} from '../../packages/doctor/src/setup/pins.ts'
export { gpusIn, whyCpu } from '../../packages/doctor/src/setup/proof.ts'
export {
  installAdvice,
  reasonOf,
  runTool,
  testOptions,
  type ToolContext,
} from '../../packages/doctor/src/setup/tool.ts'
