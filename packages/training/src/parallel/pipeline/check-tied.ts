import { tsrError } from '@tsrun/core'
import type { Parameter } from '../../model/parameter.ts'

/** @throws ERR_TSR_ARGUMENT when two of one name have different shapes */
export function checkTied(lists: readonly (readonly Pick<Parameter, 'name' | 'shape'>[])[]): void {
  const shapes = new Map<string, string>()
  for (const { name, shape } of lists.flat()) {
    const text = `[${shape.join(', ')}]`
    const other = shapes.get(name)
    if (other !== undefined && other !== text) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: `the parameter ${name}`,
        value: `one of shape ${text} in one stage, and of ${other} in another`,
        expected: 'the same shape in both, or another name',
      })
    }
    shapes.set(name, text)
  }
}
