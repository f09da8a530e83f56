import {
  customSchedule,
  formatAction,
  formatActions,
  parseAction,
  parseActions,
  parseSchedule,
  schedule,
  scheduleNames,
  validateSchedule,
  type Action,
  type ScheduleName,
} from '@tsrun/training/planning'
import { failure } from '../../support/failure.ts'

describe('the text format of actions', () => {
  it('preserves actions that are written and read', () => {
    expect(formatAction({ kind: 'F', stage: 0, microbatch: 3 })).toBe('0F3')
    expect(parseAction('12W34')).toEqual({ kind: 'W', stage: 12, microbatch: 34 })
    for (const name of scheduleNames) {
      const { actions } = schedule(name, { stages: 4, microbatches: 4 })
      expect(parseActions(formatActions(actions))).toEqual(actions)
    }
  })

  it('accepts commas and blank lines', () => {
    expect(formatActions(parseActions('\n0F0, 0B0\n\n1F0,1B0\n'))).toBe('0F0 0B0\n1F0 1B0')
  })

  it('accepts CSV with empty cells, comments, and Windows line endings', () => {
    const text = '\uFEFF# two ranks\r\n0F0,,,0B0\r\n,1F0,1B0, # the end\r\n'
    expect(formatActions(parseActions(text))).toBe('0F0 0B0\n1F0 1B0')
  })

  it.each([
    ['0F0 0B0\n1F0 1X0', /rank 1, action 1: "1X0" is not an action; write stage/],
    ['0F0,0SEND_F0', /rank 0, action 1: "0SEND_F0" is not an action; .*leave out messages/],
    ['["0F0", "0B0"]', /rank 0, action 0: "\[\\"0F0\\"" is not an action/],
    ['0F0 0B0\n1B0 1F0', /rank 1, action 0: 1B0 comes before its forward/],
    ['', /no actions/],
  ])('is refused by parseSchedule if it is invalid: %j', (text, message) => {
    expect(() => parseSchedule(text)).toThrow(failure('ERR_TSR_SCHEDULE', message))
  })

  it.each(['', 'F0', '0X1', '0F', '-1F0', '0F1.5', '0f1'])(
    'does not permit the action %p',
    (text) => {
      expect(() => parseAction(text)).toThrow(failure('ERR_TSR_SCHEDULE'))
    },
  )
})

describe('schedule', () => {
  it('lists the actions of every rank', () => {
    expect(formatActions(schedule('1f1b', { stages: 2, microbatches: 3 }).actions)).toBe(
      '0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2',
    )
  })

  it('has the same data after a structured clone, and equals another one with the same actions', () => {
    const options = { stages: 2, microbatches: 3 }
    const made = schedule('1f1b', options)
    const { name, stages, microbatches, actions, placement } = made
    expect(structuredClone(made)).toEqual({ name, stages, microbatches, actions, placement })
    expect(schedule('1f1b', options)).toEqual(made)
  })

  it('refuses unknown names and invalid counts', () => {
    const wrong: [string, number, number][] = [
      ['2f2b', 2, 2],
      ['toString', 2, 2],
      ['gpipe', 0, 2],
      ['gpipe', 2, 0],
      ['gpipe', 1.5, 2],
      ['gpipe', 2, NaN],
    ]
    for (const [name, stages, microbatches] of wrong) {
      expect(() => schedule(name as ScheduleName, { stages, microbatches })).toThrow(
        failure('ERR_TSR_ARGUMENT'),
      )
    }
  })

  it('accepts custom lists, with backward passes in halves', () => {
    const own = customSchedule(parseActions('0F0 0F1 0I0 0I1 0W0 0W1\n1F0 1I0 1F1 1I1 1W0 1W1'))
    expect(own).toMatchObject({ name: 'custom', stages: 2, microbatches: 2 })
    expect(own.simulate({ forward: 1, backward: 2 }).makespan).toBe(8)
  })
})

describe('validateSchedule', () => {
  it('refuses objects that are not actions', () => {
    for (const wrong of [{ kind: 'X' }, { stage: -1 }, { stage: 2 ** 40 }, { microbatch: 0.5 }]) {
      const action = { kind: 'F', stage: 0, microbatch: 0, ...wrong } as Action
      expect(() => customSchedule([[action]])).toThrow(
        failure('ERR_TSR_SCHEDULE', /rank 0, action 0/),
      )
    }
  })

  const impossible: [string, string, RegExp][] = [
    ['nothing', '', /no actions/],
    ['a backward before its forward', '0F0 0B1 0F1 0B0', /rank 0, action 1: 0B1 comes before/],
    ['a forward that runs twice', '0F0 0F0 0B0', /rank 0, action 1: 0F0 runs twice/],
    ['a stage on two ranks', '0F0 0B0\n1F0 0F1 1B0', /rank 1, action 1: 0F1 .* is on rank 0/],
    ['a missing forward', '0F0 0F1 0B0 0B1\n1F0 1B0', /1F1 is missing \(rank 1\)/],
    ['a missing backward', '0F0 0F1 0B0\n1F0 1F1 1B0 1B1', /0B1 is missing/],
    ['a missing stage', '0F0 0B0\n2F0 2B0', /1F0 is missing \(rank none\)/],
    ['halves in the wrong order', '0F0 0W0 0I0', /0W0 comes after F, where B or I is expected/],
    ['a backward in halves and whole', '0F0 0I0 0B0', /0B0 comes after FI, where W is/],
    ['a half without the other', '0F0 0I0', /0W0 is missing/],
    [
      'a backward twice, whole and in halves',
      '0F0 0B0 0I0',
      /0I0 comes after FB, where nothing is expected/,
    ],
    [
      'ranks that wait for each other',
      '0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1',
      /rank 0, action 1: 0B0 waits for ever for the gradient of stage 1, micro-batch 0/,
    ],
  ]
  it.each(impossible)('refuses %s', (_, text, message) => {
    expect(() => {
      validateSchedule(parseActions(text))
    }).toThrow(failure('ERR_TSR_SCHEDULE', message))
  })
})

describe('simulate', () => {
  it('takes a duration for each stage: the slowest stage sets the pace', () => {
    const simulation = schedule('1f1b', { stages: 3, microbatches: 16 }).simulate({
      forward: [1, 2, 1],
      backward: [1, 2, 1],
    })
    expect(simulation.makespan).toBe(1 + 16 * 4 + 1)
    expect(simulation.ranks.map((rank) => rank.busy)).toEqual([32, 64, 32])
    expect(simulation.ranks.map((rank) => rank.idle)).toEqual([34, 2, 34])
  })

  it('takes a duration for each micro-batch of a stage', () => {
    const plan = schedule('gpipe', { stages: 2, microbatches: 2 })
    const { makespan } = plan.simulate({ forward: [[3, 1], 1], backward: [2, [2, 5]] })
    expect(makespan).toBe(3 + 1 + 1 + 2 + 5 + 2)
  })

  it('adds a transfer for every message that a micro-batch waits for', () => {
    const { makespan } = schedule('naive', { stages: 3, microbatches: 2 }).simulate({
      forward: 1,
      backward: 1,
      transfer: 10,
    })
    expect(makespan).toBe(2 * (6 + 4 * 10))
  })

  it('lets ranks share cores: an action waits until one is free', () => {
    const options = { forward: 1, backward: 2, cores: 2 }
    const naive = schedule('naive', { stages: 4, microbatches: 2 })
    expect(naive.simulate(options)).toEqual(naive.simulate({ ...options, cores: 4 }))
    const { makespan, bubble, spans } = schedule('gpipe', { stages: 4, microbatches: 64 }).simulate(
      options,
    )
    const work = 64 * 4 * 3
    expect(makespan).toBeGreaterThan(work / 2)
    expect(makespan).toBeLessThan(work / 2 + 12)
    expect(bubble).toBeCloseTo(1 - work / (4 * makespan), 12)
    for (const { start } of spans) {
      expect(
        spans.filter((span) => span.start <= start && start < span.end).length,
      ).toBeLessThanOrEqual(2)
    }
  })

  it('gives a core to the rank that was ready first', () => {
    const gpipe = schedule('gpipe', { stages: 2, microbatches: 2 })
    const { spans, bubble } = gpipe.simulate({ forward: 1, backward: 1, cores: 1 })
    expect(spans.map(formatAction).join(' ')).toBe('0F0 0F1 1F0 1F1 1B0 0B0 1B1 0B1')
    expect(bubble).toBe(0.5)
  })

  it('refuses invalid durations', () => {
    const made = schedule('naive', { stages: 2, microbatches: 1 })
    for (const options of [
      { forward: -1 },
      { backward: NaN },
      { transfer: [1] },
      { forward: [] },
    ]) {
      expect(() => made.simulate(options)).toThrow(failure('ERR_TSR_ARGUMENT'))
    }
  })

  it.each([{ forward: 1e308 }, { transfer: 1.7e308, forward: 1e308 }])(
    'refuses durations whose sum is not a finite number: %j',
    (durations) => {
      const made = schedule('gpipe', { stages: 2, microbatches: 3 })
      expect(() => made.simulate(durations)).toThrow(
        failure('ERR_TSR_ARGUMENT', /the sum of durations is Infinity; expected a finite number/),
      )
    },
  )
})

describe('grid', () => {
  it('has a row for each rank and a column for each slot', () => {
    expect(schedule('1f1b', { stages: 2, microbatches: 2 }).grid()).toBe(
      ['rank 0 F0 F1 .  B0 .  B1', 'rank 1 .  F0 B0 F1 B1 .'].join('\n'),
    )
  })

  it('is folded if its slots do not fit on a line', () => {
    const plan = schedule('1f1b', { stages: 2, microbatches: 2 })
    expect(plan.grid({ width: 16 })).toBe(
      [
        ...['       slot 0', 'rank 0 F0 F1 .', 'rank 1 .  F0 B0', ''],
        ...['       slot 3', 'rank 0 B0 .  B1', 'rank 1 F1 B1 .'],
      ].join('\n'),
    )
    expect(plan.grid({ width: 24 }).split('\n')).toHaveLength(2)
  })
})
