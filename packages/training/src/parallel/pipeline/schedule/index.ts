export {
  formatAction,
  formatActions,
  parseAction,
  type Action,
  type ActionKind,
  type ActionLists,
} from './action.ts'
export { parseActions } from './action-text.ts'
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
export type { Durations, SimulatedRank, Simulation, SimulationOptions } from './simulate.ts'
export type { TimedAction } from './timing.ts'
export { validateSchedule } from './validate.ts'
