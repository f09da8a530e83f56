import { describeNeverEntering } from './support/flight.ts'

describeNeverEntering(['loop'])
