import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { gunzipSync } from 'node:zlib'
import type { Digits, DigitSets } from '../../examples/live/training.ts'

const PIXELS = 28 * 28

export interface LivePage {
  readonly html: string
  /** The address of the file. */
  readonly url: string
  remove(): void
}

/** Builds the page, as `npm run live` does. */
export function buildPage(): LivePage {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-live-'))
  const file = join(folder, 'live.html')
  execFileSync('node', ['scripts/live.mjs', '--out', file], {
    cwd: new URL('../../', import.meta.url),
  })
  return {
    html: readFileSync(file, 'utf8'),
    url: pathToFileURL(file).href,
    remove: () => {
      rmSync(folder, { recursive: true })
    },
  }
}

/** The digits that are in the page. */
export function digitsOf(html: string): DigitSets {
  const [, training, test, packed] =
    /id="digits" data-training="(\d+)" data-test="(\d+)">([^<]*)</.exec(html)!
  const bytes = gunzipSync(Buffer.from(packed!, 'base64'))
  const setOf = (from: number, count: number): Digits => ({
    labels: bytes.subarray(from, from + count),
    pixels: bytes.subarray(from + count, from + count * (1 + PIXELS)),
  })
  const count = Number(training)
  return { training: setOf(0, count), test: setOf(count * (1 + PIXELS), Number(test)) }
}
