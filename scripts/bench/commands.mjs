import { describeOptions, parseOptions, suggest, UsageError } from './command-line.mjs'
import { checkpoint } from './checkpoint/command.mjs'
import { collectives } from './collectives/command.mjs'
import { generation } from './generation/command.mjs'
import { join } from './join/command.mjs'
import { kernels } from './kernels/command.mjs'
import { launcher } from './launcher/command.mjs'
import { limits } from './limits/command.mjs'
import { memory } from './memory/command.mjs'
import { nodes } from './nodes/command.mjs'
import { observing } from './observing/command.mjs'
import { overlap } from './overlap/command.mjs'
import { pingPong } from './ping-pong/command.mjs'
import { report } from './report/command.mjs'
import { scale } from './scale/command.mjs'
import { schedules } from './schedules/command.mjs'
import { steps } from './steps/command.mjs'
import { flood } from './flood/command.mjs'
import { training } from './training/command.mjs'
import { tune } from './tune/command.mjs'
import { where } from './where/command.mjs'

/** @type {Readonly<Record<string, import('./command-line.mjs').Command>>} */
const commands = {
  collectives,
  tune,
  scale,
  report,
  'ping-pong': pingPong,
  kernels,
  limits,
  generation,
  overlap,
  memory,
  schedules,
  steps,
  training,
  checkpoint,
  where,
  launcher,
  join,
  flood,
  observing,
  nodes,
}

const overview = `npm run bench -- <command> [options]

${Object.entries(commands)
  .map(([name, { summary }]) => `  ${name.padEnd(12)} ${summary}`)
  .join('\n')}

npm run bench -- <command> --help lists the options of one.
scripts/bench/README.md explains the method, the columns and the peers.`

/**
 * Runs a command of the benchmarks and says what is wrong with its arguments.
 *
 * @param {readonly string[]} args
 * @returns {Promise<number>} the exit code
 */
export async function runBench(args) {
  try {
    return await runNamed(args)
  } catch (error) {
    const { code, message } = /** @type {UsageError} */ (error)
    if (code !== 'ERR_BENCH_USAGE' && code !== 'ERR_BENCH_RUN') throw error
    console.error(`bench: ${message}`)
    return code === 'ERR_BENCH_USAGE' ? 2 : 1
  }
}

/**
 * @param {readonly string[]} args
 * @returns {Promise<number>} the exit code
 */
async function runNamed([name, ...args]) {
  if (name === '--help' || name === '-h' || name === 'help') {
    console.log(overview)
    return 0
  }
  if (name === undefined) throw new UsageError(`which command?\n\n${overview}`)
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (command === undefined) {
    throw new UsageError(`unknown command "${name}"${suggest(name, Object.keys(commands))}`)
  }
  if (args.includes('--help') || args.includes('-h')) {
    console.log(`npm run bench -- ${name} [options]: ${command.summary}\n`)
    console.log(describeOptions(command.options))
    return 0
  }
  return command.run(parseOptions(command.options, args))
}
