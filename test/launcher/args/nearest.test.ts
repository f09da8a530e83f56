import { editDistance, nearest } from '../../../packages/launcher/src/args/nearest.ts'

it.each([
  ['', 'abc', 3],
  ['abc', 'abc', 0],
  ['nproc', 'nporc', 1],
  ['ranks', 'rank', 1],
  ['kitten', 'sitting', 3],
])('counts the edits from %s to %s', (from, to, edits) => {
  expect(editDistance(from, to)).toBe(edits)
  expect(editDistance(to, from)).toBe(edits)
})

it('takes what starts alike, then what is a few edits away, else nothing', () => {
  const names = ['nproc', 'nproc-per-node', 'master-port', 'ranks']
  expect(nearest('np', names)).toBe('nproc')
  expect(nearest('mater-prot', names)).toBe('master-port')
  expect(nearest('xyzzy', names)).toBeUndefined()
})
