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
export { drawSvg, type SvgOptions } from './svg.ts'
export { scheduleTrace } from './trace.ts'
export { validateSchedule } from './validate.ts'
