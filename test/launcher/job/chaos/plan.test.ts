import { parseChaosPlan } from '../../../internals/launcher/job.ts'

describe('a plan of faults', () => {
  it('may be YAML or JSON, and has defaults', () => {
    const fault = { kind: 'kill', rank: 2, step: 20 }
    const yaml = 'seed: 7\nfaults:\n  - kind: kill\n    rank: 2\n    step: 20\n'
    const plan = parseChaosPlan(yaml)
    expect(plan).toMatchObject({ seed: 7, faults: [{ ...fault, signal: 'SIGKILL', attempt: 0 }] })
    expect(parseChaosPlan(JSON.stringify({ seed: 7, faults: [fault] }))).toEqual(plan)
    expect(parseChaosPlan('faults: []')).toEqual({ seed: 1, faults: [] })
  })

  it.each([
    ['[]', 'plan is an array of 0; expected an object with seed, faults'],
    ['faults: 3', 'faults is 3; expected a list of faults'],
    ['fault: []', 'unknown key "fault"'],
    ['{ seed: -1, faults: [] }', 'seed is -1'],
    ['faults: [{ kind: kil, step: 1 }]', 'fault 1: kind is "kil"; expected one of "kill"'],
    [
      'faults: [{ kind: kill }]',
      'fault 1: exactly one of step, operations, seconds and meanSeconds',
    ],
    ['faults: [{ kind: kill, step: 1, seconds: 2 }]', 'exactly one of step'],
    ['faults: [{ kind: kill, step: 1, signal: SIGNONE }]', 'expected the name of a signal'],
    ['faults: [{ kind: kill, step: 1, ranks: 2 }]', 'did you mean rank?'],
    [
      'faults: [{ kind: stop, step: 1, signal: SIGTERM }]',
      'signal is an option of kill, not of stop',
    ],
    [
      'faults: [{ kind: kill, step: 1, forSeconds: 2 }]',
      'an option of stop and busy and delay and slow, not of kill',
    ],
    ['faults: [{ kind: drop, step: 1, milliseconds: 2 }]', 'an option of delay, not of drop'],
    ['faults: [{ kind: delay, step: 1, milliseconds: 0 }]', 'a positive number of milliseconds'],
    ['faults: [{ kind: kill, meanSeconds: 1, attempt: 2 }]', 'come in every attempt'],
    ['faults: [{ kind: slow, step: 1, share: 1 }]', 'expected a number > 0 and < 1'],
    ['faults: [{ kind: kill, operations: 0 }]', 'fault 1: operations'],
    ['faults: [7]', 'fault 1: '],
    ['faults: [null]', 'fault 1: '],
  ])('is refused with the reason: %s', (text, reason) => {
    expect(() => parseChaosPlan(text)).toThrow(reason)
  })
})
