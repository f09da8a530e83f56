import { endJobs, Job } from '../distributed/support/job.ts'

afterEach(endJobs)

describe('a rank that is killed in a pass of a model that ranks share', () => {
  it.each([
    { form: 'tp', direction: 'forward', operation: /h\.[01]\.(attn|mlp)\.c_proj: output/ },
    { form: 'tp', direction: 'backward', operation: /h\.[01]\.\w+\.c_\w+: gradient of the input/ },
    { form: 'cp', direction: 'forward', operation: /ring attention: keys and values/ },
    { form: 'cp', direction: 'backward', operation: /ring attention/ },
  ])('makes the others fail in a named operation: $form, $direction', async (given) => {
    const { form, direction, operation } = given
    const job = await Job.start({
      size: 2,
      program: '../training/killed-in-step.mjs',
      env: { FORM: form, DIRECTION: direction },
    })
    const { code, message, step } = await job.ranks[0]!.hear('failed')
    expect(code).toMatch(/^ERR_TSR_(PEER_LOST|PEER_FAILED|GROUP_FAILED)$/)
    expect(message).toContain('Rank 1 is gone')
    expect(message).toMatch(operation)
    expect(step).toBe(2)
    expect((await job.ranks[1]!.end()).signal).toBe('SIGKILL')
  })
})
