import { errorTable, tsrError, type ErrorDefinition, type TsrErrorCode } from '@tsrun/core'
import {
  coreErrors,
  distributedErrors,
  launcherErrors,
  nativeErrors,
  storeErrors,
  trainingErrors,
} from '../internals/core.ts'

const table: [string, ErrorDefinition][] = Object.entries(errorTable)

describe.each(table)('%s', (code, definition) => {
  const names = [...definition.message.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!)

  it('is well-formed in the error table', () => {
    expect(code).toMatch(/^ERR_TSR_[A-Z]+(_[A-Z]+)*$/)
    expect(['user', 'infrastructure', 'internal']).toContain(definition.category)
    expect(definition.message.replaceAll(/\{\w+\}/g, '')).not.toMatch(/[{}]/)
  })

  it('uses every declared fact in its message', () => {
    const facts = Object.fromEntries(names.map((name) => [name, `<${name} $& $1>`]))
    const error = tsrError(code as TsrErrorCode, facts as never)
    for (const fact of Object.values(facts)) expect(error.message).toContain(fact)
    expect(error.message).not.toMatch(/undefined|\{\w+\}/)
    expect(error.message).toContain(definition.advice)
    expect(error.message.endsWith(`(${code})`)).toBe(true)
  })
})

it('the sections of the error table together list every code exactly once', () => {
  const sections = [
    coreErrors,
    nativeErrors,
    storeErrors,
    distributedErrors,
    trainingErrors,
    launcherErrors,
  ]
  const codes = sections.flatMap((section) => Object.keys(section))
  expect(codes.toSorted()).toEqual(Object.keys(errorTable).toSorted())
})
