import { refuseUnknown } from '@tsrun/core'

it('names the first option that there is not, and those that there are', () => {
  refuseUnknown({ nproc: 2 }, ['nproc', 'args'])
  expect(() => {
    refuseUnknown({ nproc: 2, nprocs: 4 }, ['nproc', 'args'])
  }).toThrow('options is one with nprocs; expected no others than nproc, args')
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
