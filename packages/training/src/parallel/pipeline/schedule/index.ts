export {
  formatAction,
  formatActions,
  parseAction,
  parseActions,
  type Action,
  type ActionKind,
  type ActionLists,
} from './actions.ts'
export type { GridOptions } from './grid.ts'
export {
  customSchedule,
  parseSchedule,
  schedule,
  scheduleNames,
  type GivenLists,
  type Schedule,
  type ScheduleName,
  type ScheduleOptions,
} from './schedule.ts'
export type {
  Durations,
  SimulatedRank,
  Simulation,
  SimulationOptions,
  TimedAction,
} from './simulate.ts'
export { validateSchedule } from './validate.ts'
