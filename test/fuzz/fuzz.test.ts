import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { join } from 'node:path'
import { campaign, examine } from './campaign.ts'
import { targets } from './targets.ts'

// what the library logs of bad input is not of interest here
process.env['TSRUN_LOG_LEVEL'] = 'silent'

const corpus = fileURLToPath(new URL('corpus', import.meta.url))

// fuzz.nightly.test.ts tries more; `npm run fuzz -- --seconds 600` as many as wanted, and keeps what it finds in the corpus.
describe.each(targets.map((target) => [target.name, target] as const))(
  'the parser of %s',
  (name, target) => {
    it('reads its sample inputs without an unexpected error', async () => {
      const encode = target.encode ?? ((value: unknown) => Buffer.from(JSON.stringify(value)))
      for (const seed of target.seeds) {
        const bytes =
          target.isJson === true
            ? encode(JSON.parse(String(seed)))
            : Uint8Array.from(Buffer.from(seed))
        expect(await examine(target, bytes)).toBeUndefined()
      }
    })

    it('reads 100 mutated inputs without an unexpected error', async () => {
      const { find } = await campaign(target, { seed: 20_261_125, inputs: 100 })
      expect(
        find && { problem: find.problem, input: Buffer.from(find.input).toString('hex') },
      ).toBe(undefined)
    })

    const folder = join(corpus, name)
    for (const file of existsSync(folder) ? readdirSync(folder) : []) {
      it(`handles the input of an earlier failure: ${file}`, async () => {
        expect(await examine(target, readFileSync(join(folder, file)))).toBeUndefined()
      })
    }
  },
)
