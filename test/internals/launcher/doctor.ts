export { judge, type Finding } from '../../../packages/launcher/src/doctor/checks.ts'
export type { HostReport } from '../../../packages/launcher/src/doctor/environment.ts'
export type { Facts } from '../../../packages/launcher/src/doctor/gather.ts'
export {
  answerLinks,
  measureLink,
  SECRET_BYTES,
} from '../../../packages/launcher/src/doctor/hosts/agent.ts'
export { remarksOf, surveyText } from '../../../packages/launcher/src/doctor/hosts/report.ts'
export { rounds, type Survey } from '../../../packages/launcher/src/doctor/hosts/survey.ts'
export { readNpm } from '../../../packages/launcher/src/doctor/machine.ts'
export { OLDEST_NODE } from '../../../packages/launcher/src/package.ts'
