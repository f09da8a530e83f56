import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Worker } from 'node:worker_threads'
import { addressOf, futexWait, futexWake, mapFileOver, mapPrivateOver } from '@tsrun/native'
import { ASLEEP, AWAKE, mapPage } from './fixtures/shared-page.ts'
import { describeNative, fixture, fixtureFlags, startWorker } from './support.ts'

const LIMIT = 20_000
const peer = fixture('futex-peer.ts')

describeNative('shared memory', () => {
  let folder: string
  let path: string
  let other: Worker | ChildProcess | undefined
  beforeEach(() => {
    folder = mkdtempSync('/dev/shm/tsrun-test-')
    path = join(folder, 'page')
    writeFileSync(path, new Uint8Array(3 * 4096))
  })
  afterEach(async () => {
    if (other && 'kill' in other) other.kill('SIGKILL')
    else await other?.terminate()
    rmSync(folder, { recursive: true })
  })

  it('maps the file only to the given pages of a memory', () => {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })
    const bytes = new Uint8Array(memory.buffer)
    bytes.fill(9)
    const fd = openSync(path, 'r+')
    mapFileOver(fd, addressOf(bytes) + 4096, 4096, 8192)
    closeSync(fd)
    bytes[4096] = 1
    bytes[8191] = 2
    const file = readFileSync(path)
    expect([file[8192], file[12287], file[0]]).toEqual([1, 2, 0])
    expect([bytes[4095], bytes[8192]]).toEqual([9, 9])
    mapPrivateOver(addressOf(bytes) + 4096, 4096)
    expect([bytes[4096], bytes[8191]]).toEqual([0, 0])
    bytes[4096] = 7
    expect(readFileSync(path)[8192]).toBe(1)
  })

  it('refuses addresses within a page and descriptors that are not open', () => {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })
    const address = addressOf(new Uint8Array(memory.buffer))
    const failed = expect.objectContaining({ code: 'ERR_TSR_SYSTEM_CALL' }) as Error
    expect(() => {
      mapPrivateOver(address + 1, 4096)
    }).toThrow(failed)
    expect(() => {
      mapFileOver(-1, address, 4096)
    }).toThrow(failed)
  })

  it.each([
    ['thread', (): Worker => startWorker('futex-peer.ts', path)],
    ['process', (): ChildProcess => spawn(process.execPath, [...fixtureFlags, peer, path])],
  ])(
    'lets this thread and another %s wake each other',
    async (_, start) => {
      const { words, address } = mapPage(path)
      other = start()
      const ended = once(other, 'exit')
      Atomics.store(words, ASLEEP, 1)
      futexWake(address + 4 * ASLEEP)
      const deadline = performance.now() + LIMIT
      while (Atomics.load(words, AWAKE) === 0 && performance.now() < deadline) {
        futexWait(address + 4 * AWAKE, 0, LIMIT)
      }
      expect(Atomics.load(words, AWAKE)).toBe(1)
      Atomics.store(words, AWAKE, 2)
      futexWake(address + 4 * AWAKE)
      while (Atomics.load(words, ASLEEP) === 1 && performance.now() < deadline) {
        futexWait(address + 4 * ASLEEP, 1, LIMIT)
      }
      expect(Atomics.load(words, ASLEEP)).toBe(2)
      expect((await ended)[0]).toBe(0)
    },
    60_000,
  )

  it('does not sleep on a word that has changed, or beyond the time-out', () => {
    const { words, address } = mapPage(path)
    words[0] = -1
    futexWait(address, 0, Infinity)
    futexWait(address, 2 ** 31, Infinity)
    const started = performance.now()
    futexWait(address, 2 ** 32 - 1, 20)
    expect(performance.now() - started).toBeGreaterThanOrEqual(19)
  })
})
