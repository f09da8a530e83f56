import { join } from 'node:path'
import { loadCheckpoint, saveCheckpoint, type Part, type SavedState } from '@tsrun/training'
import { makeFolder } from './folder.ts'
import { countingOwner } from './owner.ts'

export const whole: Part = { name: 'w', shape: [4, 3] }
export const state = (step: number, first = step): SavedState => ({
  model: countingOwner([whole], first),
  step,
})

/** A folder with checkpoints of these steps; the values of step n begin with n. */
export async function folderWith(...steps: number[]): Promise<string> {
  const folder = makeFolder()
  for (const step of steps) await saveCheckpoint(folder, state(step))
  return folder
}

/** The first value of what is loaded. */
export async function load(
  folder: string,
  model = countingOwner([whole], -1),
): Promise<{ step: number; first: number }> {
  const { step } = await loadCheckpoint(folder, { model })
  const { values } = model.held[0]!
  // they count up
  expect(values.findIndex((value, i) => value - values[0]! !== i)).toBe(-1)
  return { step, first: values[0]! }
}

export const fileOf = (folder: string, step: number, name = 'rank-00000-of-00001.safetensors') =>
  join(folder, `step-${String(step).padStart(8, '0')}`, name)
