// Exports the failure report for use without a launcher. Nothing here imports Node.js.
export { worldReport } from './job/failure/world-report.ts'
