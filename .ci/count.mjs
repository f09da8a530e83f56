// Prints "N passed, N failed, N skipped" over the JSON reports of Jest; the exit code is 1 unless all passed.
import { existsSync, readFileSync } from 'node:fs'

let [passed, failed, skipped] = [0, 0, 0]
const reports = process.argv.slice(2).filter((path) => existsSync(path))
for (const report of reports.map((path) => JSON.parse(readFileSync(path, 'utf8')))) {
  passed += report.numPassedTests
  // A test file that could not be loaded holds no failed test but is a failure.
  failed += report.numFailedTests + report.numRuntimeErrorTestSuites
  skipped += report.numPendingTests + report.numTodoTests
}
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`)
process.exitCode = failed === 0 && passed > 0 ? 0 : 1
