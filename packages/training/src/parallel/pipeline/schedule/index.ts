export {
  formatAction,
  formatActions,
  parseAction,
  parseActions,
  type Action,
  type ActionKind,
  type ActionLists,
} from './actions.ts'
export { explainSimulation, type Explanation, type IdleReason, type IdleTime } from './explain.ts'
export { drawSvg, scheduleTrace, type GridOptions, type SvgOptions } from './render.ts'
export {
  customSchedule,
  parseSchedule,
  schedule,
  scheduleNames,
  validateSchedule,
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
