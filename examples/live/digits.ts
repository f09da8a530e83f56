import type { Digits, DigitSets } from './training.ts'

const PIXELS = 28 * 28

/**
 * Reads the digits that `scripts/live.mjs` has put into the page: compressed bytes as text. For each set,
 * first the labels and then the pixels.
 */
export async function readDigits(): Promise<DigitSets> {
  const { textContent, dataset } = document.getElementById('digits')!
  const packed = Uint8Array.from(atob(textContent), (character) => character.charCodeAt(0))
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))
  const bytes = new Uint8Array(await new Response(unpacked).arrayBuffer())
  const [training, test] = [Number(dataset['training']), Number(dataset['test'])]
  const split = training * (1 + PIXELS)
  return {
    training: digitsOf(bytes.subarray(0, split), training),
    test: digitsOf(bytes.subarray(split), test),
  }
}

function digitsOf(bytes: Uint8Array, count: number): Digits {
  return { labels: bytes.slice(0, count), pixels: bytes.slice(count) }
}
