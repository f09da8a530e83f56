// Runs programs of the documentation one after the other in every rank of one job, each in a folder
// of its own: starting a job for each would take longer than most of them.
// one-after-the-other.mjs PROGRAM...
import { dirname } from 'node:path'
import { pathToFileURL } from 'node:url'

// the programs get no arguments
for (const program of process.argv.splice(2)) {
  process.chdir(dirname(program))
  console.log(`begins ${program}`)
  await import(pathToFileURL(program).href)
  console.log(`ended ${program}`)
}
