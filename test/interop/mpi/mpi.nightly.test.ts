import { describeOverMpi } from './promises.ts'

describeOverMpi('inline')
