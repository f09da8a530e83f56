export {
  formatAction,
  formatActions,
  parseAction,
  parseActions,
  type Action,
  type ActionKind,
  type ActionLists,
} from './action.ts'
export type { GridOptions } from './grid.ts'
export {
  customSchedule,
  schedule,
  scheduleNames,
  type Schedule,
  type ScheduleName,
  type ScheduleOptions,
} from './schedule.ts'
export type { Durations, SimulatedRank, Simulation, SimulationOptions } from './simulate.ts'
export type { TimedAction } from './timing.ts'
export { validateSchedule } from './validate.ts'
