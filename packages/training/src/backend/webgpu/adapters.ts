import type { Dawn } from './dawn.ts'

/** A name that no adapter has: Dawn answers with the list of those that are there. */
const nobody = 'tsrun: list the adapters'

/**
 * The names of the adapters that the installed drivers offer, best first, each once: two cards of
 * one kind have one name, and Dawn takes the first.
 */
export async function adapterNames(dawn: Dawn): Promise<string[]> {
  try {
    await dawn.create([`adapter=${nobody}`]).requestAdapter({ powerPreference: 'high-performance' })
    return []
  } catch (error) {
    const { message } = error as Error
    return [...new Set([...message.matchAll(/name: '(.+)'$/gm)].map((match) => match[1]!))]
  }
}

/**
 * The one of `names` that a user means with `wanted`: the whole name, or a part of it that no other
 * has; upper and lower case are the same.
 *
 * @throws Error with the names when none or several fit
 */
export function chooseAdapter(names: readonly string[], wanted: string): string {
  const part = wanted.toLowerCase()
  const fits = names.filter((name) => name.toLowerCase().includes(part))
  const exact = names.find((name) => name.toLowerCase() === part)
  if (exact !== undefined) return exact
  if (fits.length === 1 && part !== '') return fits[0]!
  const found = fits.length > 1 ? `${String(fits.length)} adapters fit` : 'no adapter fits'
  throw new Error(
    `${found} '${wanted}' (TSRUN_WEBGPU_ADAPTER); there are: ${names.join(', ') || 'none'}`,
  )
}
