import { closeSync, openSync, readFileSync, writeFileSync, rmSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readStatusPage, statusBytes, StatusPage, StatusSlot } from '@tsrun/distributed/record'
import { needing } from '../../needs.ts'

const identity = {
  runId: 'run-1',
  script: '/a/train.ts',
  worldSize: 4,
  restartCount: 2,
  slots: 2,
  socket: undefined,
}

const { it: itOnLinux } = needing(process.platform === 'linux', 'Linux')

itOnLinux('a status page can be read by its path while its owner runs', () => {
  const page = new StatusPage(identity)
  const local = new StatusSlot(new SharedArrayBuffer(statusBytes(identity)), 1)
  new Uint8Array(local.buffer).set(readFileSync(page.path).subarray(0, 4096))
  expect(local.links(5)).toBeUndefined()
  local.links(4)!.set([10, 20, 1, 1, 30, 40, 1, 0])
  local.set('pid', 77)
  local.set('rank', 3)
  local.set('loss', NaN)
  local.set('step', 12)
  local.set('steps', 5)
  local.set('engineTime', 30)
  local.set('callerTime', 12)
  local.set('engineBytes', 100)
  local.set('callerBytes', 20)
  local.set('waitTime', 7)
  local.set('of', 40)
  local.setState('operation', 1000)
  local.set('kind', (1 << 16) | (1 << 8) | 5)
  local.set('count', 8)
  local.setText('waitsFor', '0,2')
  local.setText('group', 'g'.repeat(500))
  const fd = openSync(page.path, 'r+')
  writeFileSync(fd, new Uint8Array(local.buffer).slice(0, 0))
  closeSync(fd)
  const bytes = new Uint8Array(local.buffer).slice(4096)
  const whole = Buffer.concat([readFileSync(page.path).subarray(0, 4096), bytes])
  writeFileSync(page.path, whole)
  expect(readStatusPage(page.path)).toMatchObject({
    ...{ ...identity, launcherPid: process.pid, abortedBy: undefined },
    ranks: [
      {
        ...{ pid: 77, rank: 3, step: 12, of: 40, loss: undefined, state: 'operation', since: 1000 },
        ...{ operation: 'allReduce(sum) float32[8]', waitsFor: [0, 2], group: 'g'.repeat(124) },
        links: [
          { sent: 10, received: 20 },
          { sent: 30, received: 40 },
          { sent: 0, received: 0 },
          { sent: 0, received: 0 },
        ],
        ...{ steps: 5, operationTime: 42, operationBytes: 120, waitTime: 7 },
      },
    ],
  })
  page.end(1, { rank: 3, pid: 77 }, 'ended')
  page.end(0, { rank: 2, pid: 66 }, 'died')
  expect(page.read().ranks).toMatchObject([
    { rank: 2, pid: 66, state: 'starting', end: 'died', step: undefined, loss: undefined },
    { rank: 3, pid: 77, state: 'operation', end: 'ended', step: 12 },
  ])
  page.abort(0)
  expect(page.read().abortedBy).toBe(0)
  page.close()
  expect(() => readStatusPage(page.path)).toThrow()
})

it('a file that is not a status page is refused', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
  const path = join(folder, 'other')
  writeFileSync(path, 'something else')
  expect(() => readStatusPage(path)).toThrow('this is not a status page')
  rmSync(folder, { recursive: true })
})

it('a rank can read the abort word in its status page', () => {
  const slot = new StatusSlot(new SharedArrayBuffer(statusBytes({ slots: 1, worldSize: 1 })), 0)
  expect(slot.abortedBy).toBeUndefined()
  new Int32Array(slot.buffer)[5] = 1
  expect(slot.abortedBy).toBe(0)
})
