import { readFileSync, writeFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { fileOf, folderWith, load } from './saved.ts'

/** Loads a checkpoint with one wrong bit, for one of `stride` bits of its file. */
export function describeDamage(stride: number): void {
  describe('a damaged file', () => {
    it(`is detected by its checksum at ${stride === 1 ? 'every bit' : `every bit of ${stride}`}, and the error names the tensor`, async () => {
      const folder = await folderWith(1)
      const file = fileOf(folder, 1)
      const content = readFileSync(file)
      let harmless = 0
      for (let bit = 0; bit < 8 * content.length; bit += stride) {
        const damaged = Buffer.from(content)
        damaged[bit >> 3]! ^= 1 << (bit & 7)
        writeFileSync(file, damaged)
        const outcome = await load(folder).catch((error: unknown) => error)
        if (isDeepStrictEqual(outcome, { step: 1, first: 1 })) harmless++
        else {
          expect(outcome).toMatchObject({
            code: 'ERR_TSR_CHECKPOINT_DAMAGED',
            facts: { path: file, tensor: 'w' },
          })
        }
      }
      // in the words of the metadata
      expect(harmless).toBeLessThanOrEqual(8 * '__metadata__format'.length)
      writeFileSync(file, content)
      expect(await load(folder)).toEqual({ step: 1, first: 1 })
    })
  })
}
