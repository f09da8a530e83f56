// Training that loses a rank, continues with the others at once, and takes the rank in again.
//
//   npx tsx examples/recovery.ts [--ranks 3] [--steps 60] [--lose 20] [--return 40]
//
// tsrun ends a job when a rank fails, and starts all ranks again from a checkpoint. Here nothing starts
// again: this script plays what keeps each rank alive, such as one pod for each. It kills the last rank at
// step `--lose`. The others notice it in the middle of a step, shrink to a group of their own, take the
// parameters of the one that has come farthest, and make the step once more with fewer replicas. At step
// `--return` the lost rank is started again. All reconfigure their world, and the new one gets the
// parameters from a peer.
//
// Each step computes the mean over the whole batch, however many replicas share it. So training ends with
// the loss of one that was left in peace, but for the last digits: no example is lost, and none counts twice.
//
// Read: docs/distributed.md#surviving-a-loss

import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { toEnvironment } from '@tsrun/core'
import { startStoreServer } from '@tsrun/store'
import { count, endWith, integer, positive, readFlags } from './lib/flags.ts'
import { printResult } from './lib/output.ts'
import { trainRank, type Plan, type Said } from './lib/recovery-rank.ts'

const PLAN = 'RECOVERY_PLAN'

if (process.env[PLAN] === undefined) await supervise()
else await trainRank(JSON.parse(process.env[PLAN]) as Plan)

async function supervise(): Promise<void> {
  const flags = readFlags({
    ranks: count(3),
    steps: count(60),
    lose: count(20),
    return: count(40),
    batch: count(96),
    seed: integer(0),
    lr: positive(0.1),
  })
  const { ranks, steps, lose } = flags
  if (process.env['RANK'] !== undefined)
    endWith('Start it without tsrun: npx tsx examples/recovery.ts')
  if (ranks < 2) endWith('One rank is lost and the others continue: --ranks takes 2 or more.')
  if (!(lose < flags.return && flags.return < steps)) {
    endWith('A rank is lost before it comes back, before the end: --lose, --return, --steps.')
  }
  const plan = { ...flags, returnAt: flags.return }
  console.log(`${ranks} replicas train ${steps} steps in peace, and then lose one of them`)
  const calm = await runJob({ ...plan, returnAt: steps }, ranks, undefined)
  const disturbed = await runJob(plan, ranks, lose)
  const [undisturbed, loss] = [calm.loss, disturbed.loss]
  const difference = Math.abs(loss - undisturbed)
  console.log(`loss ${loss.toFixed(6)}, and left in peace ${undisturbed.toFixed(6)}`)
  printResult({ ranks, replicas: disturbed.replicas, loss, undisturbed, difference })
}

/** Trains, kills the last rank at a step, and starts it again when the others wait for it. */
async function runJob(
  plan: Plan,
  ranks: number,
  lose: number | undefined,
): Promise<{ readonly loss: number; readonly replicas: readonly number[] }> {
  const token = randomBytes(32).toString('hex')
  const server = await startStoreServer({ host: '127.0.0.1', port: 0, token })
  const { host, port } = server.endpoint
  const replicas: number[] = []
  let loss = NaN
  const children: ChildProcess[] = []
  const start = (rank: number): void => {
    const environment = toEnvironment({
      ...{ rank, worldSize: ranks, localRank: rank, localWorldSize: ranks, nodeRank: 0, nnodes: 1 },
      ...{ masterAddr: host, masterPort: port, runId: 'recovery', token, restartCount: 0 },
    })
    const child = spawn(process.execPath, [...process.execArgv, process.argv[1]!], {
      env: { ...process.env, ...environment, [PLAN]: JSON.stringify(plan) },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children[rank] = child
    createInterface({ input: child.stdout }).on('line', (line) => {
      hear(JSON.parse(line) as Said)
    })
  }
  const hear = (said: Said): void => {
    if (said.kind === 'end') loss = said.loss
    else if (said.kind === 'backend') {
      if (lose === undefined) console.log(said.text)
    } else if (said.kind === 'waits') {
      console.log(`rank ${ranks - 1} is started again`)
      start(ranks - 1)
    } else if (lose !== undefined) {
      if (replicas.at(-1) !== said.ranks) {
        console.log(`step ${said.step}: ${said.ranks} replicas, loss ${said.loss.toFixed(4)}`)
        replicas.push(said.ranks)
      }
      if (said.step === lose) {
        console.log(`rank ${ranks - 1} is killed after step ${said.step}`)
        children[ranks - 1]!.kill('SIGKILL')
      }
    }
  }
  for (let rank = 0; rank < ranks; rank++) start(rank)
  await Promise.all(
    children.slice(0, -1).map(async (child) => {
      await once(child, 'close')
    }),
  )
  const last = children[ranks - 1]!
  if (last.exitCode === null && last.signalCode === null) await once(last, 'close')
  await server.close()
  if (Number.isNaN(loss)) endWith('A rank has failed; its error is above.')
  return { loss, replicas }
}
