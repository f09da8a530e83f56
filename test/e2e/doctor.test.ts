import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { killLeftovers, Run, tsrun, until, untilGone } from '../launcher/support/tsrun.ts'
import { find, makeProject, type Report } from '../doctor/support/report.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-doctor-'))
})
afterEach(() => {
  killLeftovers()
  rmSync(folder, { recursive: true })
})

describe('tsrun doctor', () => {
  it('says that the default backend can train, with one line per check', async () => {
    const { code, stdout, stderr } = await tsrun(['doctor'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(new RegExp(`^OK +Node +${process.version} on ${process.platform}`, 'm'))
    expect(stdout).toMatch(/^OK +koffi/m)
    expect(stdout).toMatch(/^OK +shared memory +memfd and \/proc\/PID\/fd work/m)
    expect(stdout).toMatch(/^OK +backend wasm +trains \(TensorFlow\.js \d.*CPU/m)
    expect(stdout).toMatch(/^OK +backend cpu +trains/m)
    expect(stdout).toMatch(/\nThe default backend trains here\.\n$/)
  })

  it('names the features that are missing if koffi is not available', async () => {
    const { code, stdout } = await tsrun(['doctor', '--json'], { env: { TSRUN_NATIVE: 'off' } })
    const report = JSON.parse(stdout) as Report
    expect({ code, canTrain: report.canTrain }).toEqual({ code: 0, canTrain: true })
    expect(find(report, 'koffi')).toMatchObject({ state: 'note', found: 'TSRUN_NATIVE=off' })
    expect(find(report, 'shared memory')).toMatchObject({ state: 'note' })
  })

  it('shows the limit of open files', async () => {
    makeProject(folder, `export const loadBackend = async () => { throw new Error('not here') }`)
    const { stdout } = await tsrun(['doctor', '--json'], { ulimit: '-n 200', cwd: folder })
    expect(find(JSON.parse(stdout) as Report, 'limits')).toMatchObject({
      state: 'note',
      found: expect.stringContaining('open files: 200') as string,
    })
  })

  it('stops its child processes when it is stopped', async () => {
    const file = join(folder, 'pid')
    makeProject(
      folder,
      `
      import { renameSync, writeFileSync } from 'node:fs'
      export const loadBackend = async () => {
        writeFileSync(${JSON.stringify(`${file}.tmp`)}, String(process.pid))
        renameSync(${JSON.stringify(`${file}.tmp`)}, ${JSON.stringify(file)})
        await new Promise((resolve) => setTimeout(resolve, 60_000))
      }
    `,
    )
    const run = new Run(['doctor'], { cwd: folder })
    await until(() => existsSync(file), 'a backend is tried')
    run.signal('SIGTERM')
    expect(await run.finished).toMatchObject({ code: 143, stdout: '' })
    await untilGone([Number(readFileSync(file, 'utf8'))])
  })
})

it('tsrun env works on a host without tools', async () => {
  const bin = join(folder, 'bin')
  mkdirSync(bin)
  symlinkSync('/bin/bash', join(bin, 'bash'))
  const env = { PATH: bin, TSRUN_HOME: folder, TSRUN_NATIVE: 'off', TSRUN_TOKEN: 'c0ffee' }
  const { code, stdout, stderr } = await tsrun(['env'], { env, cwd: folder })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  expect(stdout).toMatch(new RegExp(`^- Node: ${process.version}, V8 \\S+$`, 'm'))
  expect(stdout).toMatch(/^- GPUs: none$/m)
  expect(stdout).toMatch(/^ {2}- wasm: @tensorflow\/tfjs-backend-wasm \d/m)
  expect(stdout).toMatch(/^- koffi: \d\S+, does not load: TSRUN_NATIVE=off$/m)
  expect(stdout).toMatch(/^ {2}- lo: .*127\.0\.0\.1/m)
  expect(stdout).toMatch(/^ {2}- TSRUN_TOKEN: set$/m)
  expect(stdout).not.toContain('c0ffee')
})
