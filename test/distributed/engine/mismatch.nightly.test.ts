import { describeMismatches } from './support/mismatches.ts'

describeMismatches([2, 3, 4], 12)
