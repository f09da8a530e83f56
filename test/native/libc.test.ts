import { execFileSync, spawnSync } from 'node:child_process'
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { addressOf, closeNative, isAvailable, openBlas, openSharedLibrary } from '@tsrun/native'
import { systemCallError } from '@tsrun/native'
import { describeNative, fixture, fixtureFlags } from './support.ts'

describe('the native bindings', () => {
  it('report whether they work on this machine, and why not', () => {
    const native = isAvailable()
    if (!native.available) expect(native.reason).toMatch(/koffi|platform|C library|TSRUN_NATIVE/)
  })

  it('can be disabled, and then fail with the reason', () => {
    const { stdout } = spawnSync(process.execPath, [...fixtureFlags, fixture('availability.ts')], {
      encoding: 'utf8',
      env: { ...process.env, TSRUN_NATIVE: 'off' },
    })
    expect(JSON.parse(stdout)).toEqual({
      available: { available: false, reason: 'TSRUN_NATIVE=off' },
      code: 'ERR_TSR_NATIVE_UNAVAILABLE',
    })
  })
})

describeNative('the libc binding', () => {
  it('does not open a FIFO as a library', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
    const path = join(folder, 'lib.so')
    execFileSync('mkfifo', [path])
    // Without these bytes, a faulty binding would block this test for ever.
    const bytes = Buffer.alloc(4096)
    const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK)
    try {
      writeSync(fd, bytes)
      expect(openBlas(path)).toBe(`${path} is not a regular file`)
      expect(openSharedLibrary([path])).toBeUndefined()
      expect(readSync(fd, bytes)).toBe(4096)
    } finally {
      closeSync(fd)
      rmSync(folder, { recursive: true })
    }
  })

  it('returns the address of the first byte of a view', () => {
    const bytes = new Uint8Array(new SharedArrayBuffer(64))
    expect(addressOf(bytes.subarray(8))).toBe(addressOf(bytes) + 8)
    expect(addressOf(new Float64Array(bytes.buffer, 16))).toBe(addressOf(bytes) + 16)
  })

  it('names the call, the number and the name of an error', () => {
    expect(systemCallError('connect', 111)).toMatchObject({
      code: 'ERR_TSR_SYSTEM_CALL',
      facts: { call: 'connect', errno: 111, description: 'ECONNREFUSED' },
    })
    expect(systemCallError('connect', 9999).message).toContain('9999 (unknown error)')
  })

  it('ignores a close of descriptors that are not open', () => {
    closeNative(-1)
  })
})
