import { refuseUnknown } from '@tsrun/core'

it('names the first option that there is not, and those that there are', () => {
  refuseUnknown({ nproc: 2 }, ['nproc', 'args'])
  expect(() => {
    refuseUnknown({ nproc: 2, nprocs: 4 }, ['nproc', 'args'])
  }).toThrow('options is one with nprocs; expected no others than nproc, args')
})
