// Feeds changed inputs to everything that reads what others have written, and stops at the first that ends
// in another way than with a result or an error that is meant for people.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { campaign } from '../test/fuzz/campaign.ts'
import { targets } from '../test/fuzz/targets.ts'

const usage = `npm run fuzz -- [--seconds 60] [--seed N] [--target NAME,...]

Targets: ${targets.map(({ name }) => name).join(', ')}`

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000_000) },
    target: { type: 'string' },
    help: { type: 'boolean', short: 'h', default: false },
  },
})
if (values.help) {
  console.log(usage)
  process.exit(0)
}
const names = values.target?.split(',')
const unknown = names?.find((name) => !targets.some((target) => target.name === name))
const [seconds, seed] = [Number(values.seconds), Number(values.seed)]
if (unknown !== undefined || !(seconds > 0) || !Number.isSafeInteger(seed)) {
  console.error(unknown === undefined ? usage : `there is no target ${unknown}\n\n${usage}`)
  process.exit(2)
}
// what the library logs of bad input is not of interest here
process.env['TSRUN_LOG_LEVEL'] = 'silent'

const chosen = targets.filter(({ name }) => names?.includes(name) !== false)
const corpus = fileURLToPath(new URL('../test/fuzz/corpus', import.meta.url))
console.log(`seed ${seed}: ${chosen.length} targets in ${seconds} s`)
let total = 0
let failed = 0
for (const target of chosen) {
  const end = Date.now() + (1000 * seconds) / chosen.length
  const { find, tried } = await campaign(target, { seed, isOver: () => Date.now() >= end })
  total += tried
  console.log(`${target.name.padEnd(20)} ${String(tried).padStart(9)} inputs`)
  if (find === undefined) continue
  failed++
  mkdirSync(join(corpus, target.name), { recursive: true })
  const path = join(corpus, target.name, `seed-${seed}`)
  writeFileSync(path, find.input)
  console.log(`FAILED: the input is kept in ${path}\n${find.problem}`)
}
console.log(`${total} inputs, ${failed} of ${chosen.length} targets failed`)
process.exitCode = failed === 0 ? 0 : 1
