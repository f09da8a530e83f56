import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { readTensorFlowManifest, writeManifest } from '@tsrun/core'
import { FakeSetUp } from '../support/fake-set-up.ts'

const fake = new FakeSetUp()
const setUp = fake.run.bind(fake)

describe('a set-up whose kernels do not compile', () => {
  it.each([
    ['other-headers', "passes.cc:9:1: error: 'TensorHandle' was not declared"],
    ['no-kernels', "kernels.cc:5:10: fatal error: 'Eigen/Core' file not found"],
  ])('says why and computes without them: %s', async (COMPILER, reason) => {
    const { code, stdout } = await setUp({ COMPILER })
    expect(code).toBe(0)
    expect(stdout).toContain(`kernels that tsrun adds do not compile (${reason}): small layers`)
    const log = join(fake.env['TSRUN_HOME']!, 'tensorflow/setup.log')
    expect(stdout).toContain(`all output is in ${log}`)
    expect(readFileSync(log, 'utf8')).toContain(reason)
    expect(readTensorFlowManifest(fake.env)?.kernels).toBe(false)

    const check = await setUp({}, '--check')
    expect(check.code).toBe(0)
    expect(check.stdout).toContain('4.22.0, without the kernels of tsrun, in /')
    expect((await setUp({})).stdout).toContain('there is nothing to do')
    expect(readTensorFlowManifest(fake.env)?.kernels).toBe(false)
  })

  it('is not reported if the compiler lacks only some instructions', async () => {
    const { stdout } = await setUp({ COMPILER: 'old' })
    expect(stdout).not.toMatch(/kernels (that|of) /)
    expect(readTensorFlowManifest(fake.env)?.kernels).toBe(true)
    expect((await setUp({}, '--check')).stdout).not.toMatch(/kernels (that|of) /)
    // a manifest of before says nothing about them
    const { kernels, ...older } = readTensorFlowManifest(fake.env)!
    writeManifest('tensorflow', older, fake.env)
    expect(kernels).toBe(true)
    expect((await setUp({})).stdout).toMatch(
      /set up on CPU \(\S+ 4\.22\.0, in .*there is nothing to do/,
    )
  })
})
