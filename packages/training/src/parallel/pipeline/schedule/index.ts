export {
  formatAction,
  formatActions,
  parseAction,
  parseActions,
  type Action,
  type ActionKind,
  type ActionLists,
} from './actions.ts'
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
export {
  explainSimulation,
  type Durations,
  type Explanation,
  type IdleReason,
  type IdleTime,
  type SimulatedRank,
  type Simulation,
  type SimulationOptions,
  type TimedAction,
} from './simulate.ts'
