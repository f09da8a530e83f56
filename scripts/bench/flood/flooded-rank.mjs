// One of two ranks: flooded-rank.mjs OUTPUT COUNT RATE. Unauthenticated clients flood rank 0 while it
// waits for rank 1, which then dials it. Then steps are timed, without a flood and while the store is
// flooded.
import { fork } from 'node:child_process'
import { readdirSync, writeFileSync } from 'node:fs'
import { readProtection, readRankEnvironment } from '@tsrun/core'
import { initProcessGroup } from '@tsrun/distributed'
import { connectStore, storeTlsOf } from '@tsrun/store'

const [output = '', count = '', rate = ''] = process.argv.slice(2)
const STEPS = 150

const environment = readRankEnvironment()
if (environment === undefined) throw new Error('to be started by tsrun')
const { rank, masterAddr: host, masterPort: port, token } = environment

const flood = new URL('flood.mjs', import.meta.url)

/**
 * @typedef {object} Flood
 * @property {number} made
 * @property {number} ended
 * @property {number} admitted
 * @property {number} seconds
 */

/**
 * Floods an endpoint with unauthenticated connections.
 *
 * @param {{ host: string, port: number }} endpoint
 * @returns {{ made: Promise<void>, over: Promise<Flood> }}
 */
function startFlood(endpoint) {
  const args = [endpoint.host, String(endpoint.port), count, rate]
  const child = fork(flood, args, { silent: true, execArgv: [] })
  let text = ''
  child.stdout?.on('data', (bytes) => (text += bytes))
  return {
    made: new Promise((resolve) => child.once('message', () => resolve())),
    over: new Promise((resolve) => child.once('close', () => resolve(JSON.parse(text)))),
  }
}

/**
 * Watches how many descriptors a process has open.
 *
 * @param {number | 'self'} pid
 */
function watchDescriptors(pid) {
  let most = 0
  const timer = setInterval(() => {
    most = Math.max(most, readdirSync(`/proc/${pid}/fd`).length)
  }, 20)
  return () => {
    clearInterval(timer)
    return most
  }
}

const tls = storeTlsOf(readProtection())
const store = await connectStore({ host, port, token, ...(tls && { tls }) })
const ownDescriptors = watchDescriptors('self')
const storeDescriptors = watchDescriptors(process.ppid)

/** @type {Flood | undefined} */
let atDataPort
let joiningFrom = performance.now()
if (rank === 1) {
  // The last that a rank says before it calls the others, which listen by then.
  const set = store.set.bind(store)
  store.set = async (key, ...rest) => {
    if (key === 'world/0/joined/1') {
      const text = await store.get('world/0/endpoint/0')
      const { made, over } = startFlood(JSON.parse(Buffer.from(text).toString()))
      await made
      void over.then((result) => (atDataPort = result))
      joiningFrom = performance.now()
    }
    await set(key, ...rest)
  }
}
const group = await initProcessGroup({ transport: 'tcp', store })
await group.barrier()
const joiningMs = performance.now() - joiningFrom
const mostAtDataPort = ownDescriptors()

const gradients = group.alloc('float32', 65_536)

/** A step: some milliseconds of computing, and an all-reduce. */
async function step() {
  let sum = 0
  for (let i = 0; i < 6e6; i++) sum += Math.sqrt(i)
  gradients.fill(sum > 0 ? 1 : 0)
  await group.allReduce(gradients)
}

/** @param {() => boolean} isOver - said by rank 1, which counts for all */
async function timeSteps(isOver) {
  const times = []
  const over = new Uint8Array(1)
  for (;;) {
    const start = performance.now()
    await step()
    times.push(performance.now() - start)
    over[0] = rank === 1 && isOver() ? 1 : 0
    await group.broadcast(over, 1)
    if (over[0] === 1) return times
  }
}

// The flood of the data port is over first.
while (rank === 1 && atDataPort === undefined) await new Promise((go) => setTimeout(go, 20))
await group.barrier()
for (let i = 0; i < 20; i++) await step()
let left = STEPS
const quiet = await timeSteps(() => --left <= 0)
let isMade = false
const atStore = rank === 1 ? startFlood({ host, port }) : undefined
void atStore?.made.then(() => (isMade = true))
const busy = await timeSteps(() => isMade)
await group.barrier()

const middle = (/** @type {number[]} */ times) => times.toSorted((a, b) => a - b)[times.length >> 1]
const facts = {
  joiningMs,
  mostAtDataPort,
  stepMs: middle(quiet),
  busyStepMs: middle(busy),
  mostAtStore: storeDescriptors(),
}
/** @type {unknown[]} */
const all = await group.allGatherObject({ ...facts, atDataPort, atStore: await atStore?.over })
if (rank === 0) writeFileSync(output, JSON.stringify(all))
await group.destroy()
await store.close()
