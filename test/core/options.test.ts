import {
  anything,
  callback,
  choice,
  count,
  declareOptions,
  flag,
  having,
  nearestName,
  number,
  pattern,
  positive,
  refuseUnknown,
  text,
  where,
  type Complete,
  type Rule,
} from '@tsrun/core'

const rules = {
  wire: choice(['float32', 'bfloat16', 'float16']).default('float32'),
  microbatches: count({ from: 1 }).default(8),
  clip: number({ from: 0, below: 1 }).optional(),
  rank: count({ from: 0, to: 3 }),
}
const readOptions = declareOptions(rules)

it('fills in the defaults, leaves out what is optional, and keeps what is given', () => {
  const options: Complete<typeof rules> = readOptions({ rank: 2, microbatches: 4 })
  expect(options).toEqual({ wire: 'float32', microbatches: 4, clip: undefined, rank: 2 })
})

it.each<[object, string]>([
  [{}, 'rank is undefined; expected a whole number from 0 to 3'],
  [{ rank: 4 }, 'rank is 4; expected a whole number from 0 to 3'],
  [{ rank: '1' }, 'rank is "1"; expected a whole number'],
  [{ rank: 0, wire: 'half' }, 'wire is "half"; expected one of "float32", "bfloat16", "float16"'],
  [{ rank: 0, wire: null }, 'wire is null; expected one of'],
  [{ rank: 0, microbatches: 0 }, 'microbatches is 0; expected a whole number from 1'],
  [{ rank: 0, clip: 1 }, 'clip is 1; expected a number >= 0 and < 1'],
  [{ rank: 0, clip: NaN }, 'clip is NaN; expected a number'],
])('refuses %j', (given, message) => {
  expect(() => readOptions(given)).toThrow(message)
})

it.each<[Rule<unknown>, unknown, unknown, string]>([
  [flag(), true, 1, 'x is 1; expected true or false'],
  [positive(), 0.5, 0, 'x is 0; expected a positive number'],
  [positive('a positive number of bytes'), 1, '1', 'x is "1"; expected a positive number of bytes'],
  [number(), -1, Infinity, 'x is Infinity; expected a number'],
  [number({ above: 0, to: 1 }), 1, 0, 'x is 0; expected a number > 0 and <= 1'],
  [pattern(/^\d+$/, 'digits, as in 29500'), '80', 'a', 'x is "a"; expected digits, as in 29500'],
  [text(), 'a', '', 'x is ""; expected a text that is not empty'],
  [callback('a function of a batch'), () => 1, {}, 'expected a function of a batch'],
  [
    having<Map<string, string>>(['get'], 'a store'),
    new Map(),
    {},
    'x is an empty object; expected a store',
  ],
  [
    where(
      (value) => value === 7,
      'seven',
      () => 'another',
    ),
    7,
    8,
    'x is another; expected seven',
  ],
])('a rule accepts what it says, and nothing else (%#)', (rule, right, wrong, message) => {
  expect(rule.check('x', right)).toBe(right)
  expect(() => rule.check('x', wrong)).toThrow(message)
  expect(() => rule.check('x', undefined)).toThrow(/^x is (undefined|another); expected/)
  expect(rule.optional().check('x', undefined)).toBeUndefined()
  expect(rule.default(right).check('x', undefined)).toBe(right)
})

it('checks nothing where anything goes', () => {
  expect(anything<string>().check('x', null)).toBeNull()
})

it('names the first key that is unknown, the nearest that exists, and all that exist', () => {
  refuseUnknown({ nproc: 2 }, ['nproc', 'args'])
  expect(() => {
    refuseUnknown({ nproc: 2, nprocs: 4 }, ['nproc', 'args'])
  }).toThrow(
    'options is an object with the unknown key "nprocs"; expected only nproc, args (did you mean nproc?)',
  )
  expect(() => {
    refuseUnknown({ colour: 4 }, ['nproc', 'args'], 'state')
  }).toThrow(/state is an object with the unknown key "colour"; expected only nproc, args\. /)
})

it.each([
  [undefined, /options is undefined; expected an object with nproc, args/],
  [null, /options is null/],
  ['gloo', /options is "gloo"/],
  [[1, 2], /options is an array of 2/],
  [() => 1, /options is a function/],
])('refuses %p in the place of options', (options, message) => {
  expect(() => {
    refuseUnknown(options as object, ['nproc', 'args'])
  }).toThrow(message)
})

it('takes for the nearest name what starts alike, then what is a few edits away, else nothing', () => {
  const names = ['nproc', 'nproc-per-node', 'master-port', 'ranks', 'learningRate']
  expect(nearestName('np', names)).toBe('nproc')
  expect(nearestName('mater-prot', names)).toBe('master-port')
  expect(nearestName('learningrate', names)).toBe('learningRate')
  expect(nearestName('xyzzy', names)).toBeUndefined()
  expect(nearestName('', names)).toBeUndefined()
})
