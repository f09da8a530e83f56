import { inspect } from 'node:util'
import { isTsrError, TsrError } from '@tsrun/core/errors'
import type { ErrorReport } from './control-message.ts'

const LONGEST_TEXT = 32 * 1024

type Description = Omit<ErrorReport, 'kind' | 'at' | 'brief'>

/** The facts of whatever was thrown; never throws itself. */
export function describeError(thrown: unknown): Description {
  try {
    const own = causes(thrown).find(isTsrError)
    const { name, message, code } = Object(thrown) as Record<string, unknown>
    const known = own?.code ?? (typeof code === 'string' ? code : undefined)
    return {
      name: typeof name === 'string' ? name : typeof thrown,
      message: typeof message === 'string' ? message : String(thrown),
      text: print(thrown).slice(0, LONGEST_TEXT),
      peers: own === undefined ? [] : peersOf(own),
      consequence: own !== undefined && isConsequence(own),
      ...(known === undefined ? {} : { code: known }),
    }
  } catch {
    const text = `a value of type ${typeof thrown} that cannot be printed`
    return { name: 'unknown', message: text, text, peers: [], consequence: false }
  }
}

/** In one line. */
export function summarizeError(thrown: unknown): string {
  const chain = causes(thrown).map((error) => {
    const { name, message } = Object(error) as Record<string, unknown>
    return [name, message].filter((text) => typeof text === 'string').join(': ')
  })
  return chain.join(' [cause] ').replaceAll(/\s*\n\s*/g, ' ')
}

/** As Node does; an error of ours without its facts, which its message holds already. */
function print(thrown: unknown): string {
  if (!isTsrError(thrown) || thrown.stack === undefined) return inspect(thrown)
  return thrown.cause === undefined
    ? thrown.stack
    : `${thrown.stack}\n[cause]: ${inspect(thrown.cause)}`
}

/** The error, its cause, the cause of that, … */
function causes(thrown: unknown): unknown[] {
  const chain: unknown[] = []
  for (let next = thrown; next !== undefined && next !== null && !chain.includes(next);) {
    chain.push(next)
    next = typeof next === 'object' ? (next as { cause?: unknown }).cause : undefined
  }
  return chain
}

/** Reads the table by code: an error that crossed a thread has lost its getters. */
function isConsequence({ code }: TsrError): boolean {
  return new TsrError(code, '', {}).isConsequence
}

function peersOf({ facts }: TsrError): number[] {
  const text = String((facts as TsrError['facts'] | undefined)?.['peer'] ?? '')
  return [...text.matchAll(/\d+/g)].map(([digits]) => Number(digits))
}
