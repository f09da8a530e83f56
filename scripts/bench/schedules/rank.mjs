// One stage of the measured pipeline: rank.mjs OUTPUT SETUP, where SETUP is JSON.
import { writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'
import { loadBackend, measureSchedules } from '@tsrun/training'

const [output, setup] = /** @type {[string, string]} */ (process.argv.slice(2))
await loadBackend()
const group = await initProcessGroup()
const measured = await measureSchedules(group, JSON.parse(setup))
if (group.rank === 0) writeFileSync(output, JSON.stringify(measured))
await group.destroy()
