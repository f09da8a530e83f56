import { encodeFunction } from '../../../packages/training/src/backend/function-def.ts'

const bytes = (text: string): number[] => [...new TextEncoder().encode(text)]
const field = (number: number, ...value: number[]): number[] => [
  (number << 3) | 2,
  value.length,
  ...value,
]

it('encodes a function as TensorFlow reads it: field by field', () => {
  const found = encodeFunction({
    name: 'f',
    inputs: ['x'],
    outputs: { y: 'n:product:0' },
    nodes: [{ name: 'n', operation: 'MatMul', inputs: ['x', 'x'], flags: { transpose_a: true } }],
  })
  const float = [0x18, 1]
  const signature = [
    ...field(1, ...bytes('f')),
    ...field(2, ...field(1, ...bytes('x')), ...float),
    ...field(3, ...field(1, ...bytes('y')), ...float),
  ]
  const node = [
    ...field(1, ...bytes('n')),
    ...field(2, ...bytes('MatMul')),
    ...field(3, ...bytes('x')),
    ...field(3, ...bytes('x')),
    ...field(5, ...field(1, ...bytes('T')), ...field(2, 0x30, 1)),
    ...field(5, ...field(1, ...bytes('transpose_a')), ...field(2, 0x28, 1)),
  ]
  const result = field(4, ...field(1, ...bytes('y')), ...field(2, ...bytes('n:product:0')))
  expect([...found]).toEqual([...field(1, ...signature), ...field(3, ...node), ...result])
})

it('encodes lengths above 127, and false', () => {
  const name = 'f'.repeat(300)
  const node = { name: 'n', operation: 'Relu', inputs: ['x'], flags: { exact: false } }
  const found = encodeFunction({ name, inputs: [], outputs: {}, nodes: [node] })
  // 300 = 0b10_0101100; with its tag and length the name takes 303 bytes
  expect([...found.subarray(0, 6)]).toEqual([0x0a, 0xaf, 0x02, 0x0a, 0xac, 0x02])
  expect([...found.subarray(-4)]).toEqual([0x12, 2, 0x28, 0])
})
