import { describeLengths, describePartners } from './support.ts'

describeLengths([...Array.from({ length: 135 }, (_, length) => length), 1000, 4099])
describePartners(
  'all others, once each',
  'zero, that keeps all numbers',
  'itself',
  'its negative',
  'the next ones',
  'those a little smaller',
)
