export { planLayouts, type LayoutPlan, type PlannedLayout, type PlanOptions } from './layouts.ts'
export type { RankLayout, LayoutMemory, ModelShape, PlanDtype, PlanOptimizer } from './memory.ts'
export type { StepTime } from './step-time.ts'
export { planTable } from './table.ts'
