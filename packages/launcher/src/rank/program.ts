/**
 * Starts a rank that is not a Node script: program.js PATH ARGUMENTS. It registers with the launcher
 * like any rank, and then becomes the program.
 */
import { spawn } from 'node:child_process'
import { becomeProgram, isAvailable } from '@tsrun/native'
import { bindToCores, dieWithLauncher, takePlace } from './prepare.ts'

const [path, ...args] = process.argv.slice(2) as [string, ...string[]]
const place = takePlace()
bindToCores()
dieWithLauncher(place)
if (isAvailable().available) {
  try {
    becomeProgram(path, [path, ...args])
  } catch (error) {
    console.error(`tsrun: cannot run ${path}: ${(error as Error).message}`)
    process.exit(126)
  }
}
// Without koffi, run the program as a child process in the same session.
const child = spawn(path, args, { stdio: 'inherit' })
child.on('error', (error) => {
  console.error(`tsrun: cannot run ${path}: ${error.message}`)
  process.exit(126)
})
child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code ?? 1)
  process.kill(process.pid, signal)
})
