// Computations that need no model: schedules, simulations, layouts. Nothing here loads TensorFlow.js, so
// that `tsrun schedule`, `tsrun plan` and pages in a browser can use this module.
export * from './parallel/pipeline/schedule/index.ts'
export {
  planLayouts,
  planTable,
  type LayoutMemory,
  type LayoutPlan,
  type ModelShape,
  type PlannedLayout,
  type PlanOptimizer,
  type PlanOptions,
  type RankLayout,
} from './planning/layouts.ts'
