import {
  anything,
  callback,
  choice,
  count,
  declareOptions,
  either,
  filled,
  finite,
  flag,
  having,
  integer,
  list,
  nearestName,
  number,
  object,
  parseJson,
  positive,
  readVariable,
  record,
  refuseUnknown,
  text,
  where,
  written,
  type Complete,
  type Of,
  type Schema,
} from '@tsrun/core'

const rules = {
  wire: choice('float32', 'bfloat16', 'float16').default('float32'),
  microbatches: count({ from: 1 }).default(8),
  clip: finite({ from: 0, below: 1 }).optional(),
  rank: count({ from: 0, to: 3 }),
}
const readOptions = declareOptions(rules)

it('a schema fills in defaults, omits missing optional values, and keeps given values', () => {
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
])('a schema refuses the options %j', (given, message) => {
  expect(() => readOptions(given)).toThrow(message)
})

it.each<[Schema<unknown>, unknown, unknown, string]>([
  [flag, true, 1, 'x is 1; expected true or false'],
  [positive(), 0.5, 0, 'x is 0; expected a positive number'],
  [positive('a positive number of bytes'), 1, '1', 'x is "1"; expected a positive number of bytes'],
  [finite(), -1, Infinity, 'x is Infinity; expected a number'],
  [finite({ above: 0, to: 1 }), 1, 0, 'x is 0; expected a number > 0 and <= 1'],
  [
    text.refine((digits) => /^\d+$/.test(digits), 'digits, as in 29500'),
    '80',
    'a',
    'x is "a"; expected digits, as in 29500',
  ],
  [filled(), 'a', '', 'x is ""; expected a text that is not empty'],
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
  [text, '', 1, 'x is 1; expected a text'],
  [number, NaN, '1', 'x is "1"; expected a number'],
  [integer, -1, 1.5, 'x is 1.5; expected an integer'],
  [
    text.refine((token) => token.length > 4, 'a token').secret(),
    'abcde',
    'abcd',
    'x is a text of 4; expected a token',
  ],
])('a schema accepts valid values only (%#)', (schema, right, wrong, message) => {
  expect(schema.check('x', right)).toBe(right)
  expect(() => schema.check('x', wrong)).toThrow(message)
  expect(() => schema.check('x', undefined)).toThrow(/^x is (undefined|another); expected/)
  expect(schema.optional().check('x', undefined)).toBeUndefined()
  expect(schema.default(right).check('x', undefined)).toBe(right)
})

it('a schema of any value checks nothing', () => {
  expect(anything<string>().check('x', null)).toBeNull()
})

it('a schema refuses an unknown key, and names the nearest known key and all keys', () => {
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
])('a schema refuses %p in place of options', (options, message) => {
  expect(() => {
    refuseUnknown(options as object, ['nproc', 'args'])
  }).toThrow(message)
})

it('the nearest name must share the first letters or differ by few edits', () => {
  const names = ['nproc', 'nproc-per-node', 'master-port', 'ranks', 'learningRate']
  expect(nearestName('np', names)).toBe('nproc')
  expect(nearestName('mater-prot', names)).toBe('master-port')
  expect(nearestName('learningrate', names)).toBe('learningRate')
  expect(nearestName('tpo', ['ps', 'top', 'logs'])).toBe('top')
  expect(nearestName('xyzzy', names)).toBeUndefined()
  expect(nearestName('', names)).toBeUndefined()
})

const point = object({ x: integer, label: text.optional(), at: number.nullable() })

it('a schema infers the type of an object whose optional fields may be missing', () => {
  const origin: Of<typeof point> = { x: 0, at: null }
  expect(point.is(origin)).toBe(true)
  // @ts-expect-error x is missing
  const bad: Of<typeof point> = { at: 1 }
  expect(point.is(bad)).toBe(false)
})

it.each<[unknown, boolean]>([
  [{ x: 1, at: 1.5, label: 'a', more: true }, true],
  [{ x: 1, at: NaN, label: undefined }, true],
  [{ x: '1', at: 1 }, false],
  [{ x: 1 }, false],
  [{ x: 1, at: 1, label: null }, false],
  [Object.create({ x: 1, at: 1 }), false],
  [JSON.parse('{"__proto__":{"x":1,"at":1}}'), false],
  [[1, 2], false],
  [null, false],
  ['x', false],
])('object() checks whether %j has its own valid fields: %p', (value, fits) => {
  expect(point.is(value)).toBe(fits)
})

it('object() refuses unknown fields if the option says so', () => {
  const strict = object({ x: integer }, 'refuse')
  expect(strict.is({ x: 1 })).toBe(true)
  expect(strict.is({ x: 1, y: 2 })).toBe(false)
  expect(strict.is(JSON.parse('{"x":1,"__proto__":2}'))).toBe(false)
})

it.each<[Schema<unknown>, unknown, unknown]>([
  [list(count(), 2), [1, 2], [1, 2, 3]],
  [list(count()), [], [-1]],
  [list(count()), [1], { length: 1, 0: 1 }],
  [record(flag), { a: true }, { a: 1 }],
  [record(flag), {}, []],
  [either(integer, text), 'a', 1.5],
  [integer.optional(), undefined, null],
  [integer.nullable(), null, undefined],
  [count({ from: 1, to: 3 }), 3, 4],
  [count({ from: 1, to: 3 }), 1, 2 ** 53],
  [text.refine((word) => word.startsWith('a')), 'ab', 'b'],
])('a message schema accepts or refuses without conversion (%#)', (schema, right, wrong) => {
  expect(schema.is(right)).toBe(true)
  expect(schema.is(wrong)).toBe(false)
})

it('parseJson() returns a valid value, and undefined for any other text', () => {
  expect(parseJson('{"x":1,"at":null}', point)).toEqual({ x: 1, at: null })
  expect(parseJson('{"x":1}', point)).toBeUndefined()
  expect(parseJson('{"x":', point)).toBeUndefined()
})

it('a schema keeps a secret out of its error', () => {
  const read = declareOptions({ token: text.refine((token) => token === '').secret() })
  expect(() => read({ token: 'hunter2' })).toThrow(/^token is a text of 7; expected a text\./)
  expect(() => read({ token: { key: 'hunter2' } })).toThrow(/^token is object; expected a text\./)
})

const pair = written('two digits, as in 2:4', (digits) => /^(\d):(\d)$/.exec(digits)?.slice(1))

it.each<[Schema<unknown>, string | undefined, unknown]>([
  [count({ to: 4 }), '3', 3],
  [count().default(7), undefined, 7],
  [count().default(7), '', 7],
  [text.optional(), '', undefined],
  [text, ' a ', ' a '],
  [flag, 'Yes', true],
  [flag, 'off', false],
  [choice('auto', 'tcp'), 'tcp', 'tcp'],
  [choice(0, 1), '1', 1],
  [number, '0.5', 0.5],
  [pair, '2:4', ['2', '4']],
])(
  'readVariable() parses the text of a variable, or returns the default (%#)',
  (schema, given, value) => {
    expect(readVariable('TSRUN_X', schema, { TSRUN_X: given })).toEqual(value)
  },
)

it.each<[Schema<unknown>, string | undefined, string]>([
  [count({ to: 4 }), '5', 'TSRUN_X is "5"; expected a whole number from 0 to 4'],
  [count(), '1e3', 'TSRUN_X is "1e3"; expected a whole number from 0'],
  [count(), ' 1', 'TSRUN_X is " 1"; expected a whole number from 0'],
  [count(), undefined, 'TSRUN_X is not set; expected a whole number from 0'],
  [filled('a value'), '', 'TSRUN_X is not set; expected a value'],
  [flag, 'maybe', 'TSRUN_X is "maybe"; expected true or false'],
  [choice('auto', 'tcp'), 'udp', 'TSRUN_X is "udp"; expected "auto" or "tcp"'],
  [number.refine((value) => value > 0, 'seconds'), 'soon', 'TSRUN_X is "soon"; expected seconds'],
  [pair, '2-4', 'TSRUN_X is "2-4"; expected two digits, as in 2:4'],
  [
    text.refine(() => false, 'a token').secret(),
    'hunter2',
    'TSRUN_X is a text of 7; expected a token',
  ],
])('readVariable() refuses invalid texts (%#)', (schema, given, message) => {
  const act = (): unknown => readVariable('TSRUN_X', schema, { TSRUN_X: given })
  expect(act).toThrow(expect.objectContaining({ code: 'ERR_TSR_ENVIRONMENT' }) as Error)
  expect(act).toThrow(message)
})
