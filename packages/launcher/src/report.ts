// The failure report without a launcher. Nothing here imports Node.js.
export { worldReport } from './job/failure/world-report.ts'
