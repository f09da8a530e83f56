import { readFileSync } from 'node:fs'
import { createContext, runInContext, SourceTextModule } from 'node:vm'
import type * as Browser from '@tsrun/distributed/browser'
import { build, transformSync, type Metafile } from 'esbuild'
import { describeInChromium } from '../e2e/support/browser.ts'
import { recordedLosses } from '../fixtures/launcher/losses.ts'
import { bundlePage, testBundle } from './in-browser.ts'
import type * as inNode from './page.ts'

let code: string
let metafile: Metafile

beforeAll(async () => {
  ;({ code, metafile } = await bundlePage())
})

/** The modules of a bundle that contribute to it. */
function modulesOf({ outputs }: Metafile): string[] {
  return Object.values(outputs).flatMap(({ inputs }) =>
    Object.keys(inputs).filter((name) => inputs[name]!.bytesInOutput > 0),
  )
}

it('the bundle has collectives and a pipeline on wasm, and imports no module of Node', () => {
  const [output] = Object.values(metafile.outputs)
  expect(output!.imports).toEqual([])
  const used = modulesOf(metafile)
  expect(used).toContain('packages/core/src/host/browser.ts')
  const importing = used.filter((name) =>
    metafile.inputs[name]!.imports.some(({ path }) => path.startsWith('node:')),
  )
  expect(importing).toEqual([])
})

it.each(['distributed', 'training'])(
  'a bundler for browsers resolves @tsrun/%s to its entry for pages',
  async (name) => {
    for (const [conditions, entry] of [
      [[], 'dist/browser.js'],
      [['@tsrun/source'], 'src/browser.ts'],
    ] as const) {
      const { metafile } = await build({
        stdin: {
          contents: `export { runWorld } from '@tsrun/${name}'`,
          resolveDir: new URL('../../', import.meta.url).pathname,
        },
        bundle: true,
        write: false,
        metafile: true,
        format: 'esm',
        platform: 'browser',
        conditions: [...conditions],
        external: ['node:*'],
        loader: { '.wasm': 'binary' },
        logLevel: 'silent',
      })
      const inputs = Object.keys(metafile.inputs)
      expect(inputs).toContain(`packages/${name}/${entry}`)
      expect(inputs).not.toContain(`packages/${name}/${entry.replace('browser', 'index')}`)
    }
  },
)

describe.each(['distributed', 'training'])('@tsrun/%s/browser', (name) => {
  const root = new URL('../../', import.meta.url)
  const built = new URL(`packages/${name}/dist/browser.js`, root)

  it('is one module that needs nothing of Node', async () => {
    const { runWorld } = await load<Pick<typeof Browser, 'runWorld'>>(readFileSync(built, 'utf8'))
    const sums = await runWorld({ size: 2, memory: 8 << 20 }, async (group) => {
      const buffer = group.alloc('float32', 1).fill(group.rank + 1)
      await group.allReduce(buffer)
      return buffer[0]
    })
    expect(sums).toEqual([3, 3])
  })

  it('consists of modules that run in a page', async () => {
    const { metafile } = await build({
      absWorkingDir: root.pathname,
      entryPoints: [`packages/${name}/src/browser.ts`],
      bundle: true,
      write: false,
      metafile: true,
      format: 'esm',
      platform: 'browser',
      conditions: ['@tsrun/source'],
      external: ['node:*'],
      loader: { '.wasm': 'binary' },
      logLevel: 'silent',
    })
    const used = modulesOf(metafile)
    const own = used.filter((path) => /^packages\/.*\.ts$/.test(path))
    expect(own).toContain('packages/distributed/src/engine/engine.ts')
    const inNode = own.filter(
      (path) =>
        metafile.inputs[path]!.imports.some((each) => each.path.startsWith('node:')) ||
        /\bprocess\.|\bBuffer\b|\.unref\(/.test(codeOf(new URL(path, root))),
    )
    expect(inNode).toEqual([])
    const packages = used.flatMap(
      (path) => /^[^(]*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? [],
    )
    expect([...new Set(packages)].sort()).toEqual(packagesOf[name])
  })
})

/** The packages of others that the entries contain. */
const packagesOf: Readonly<Record<string, readonly string[]>> = {
  distributed: ['fastest-levenshtein', 'msgpackr'],
  training: [
    '@tensorflow/tfjs-backend-cpu',
    '@tensorflow/tfjs-backend-wasm',
    '@tensorflow/tfjs-core',
    'fastest-levenshtein',
    'long',
    'msgpackr',
    'seedrandom',
  ],
}

/** The code of a module, without comments and texts. */
function codeOf(module: URL): string {
  const { code } = transformSync(readFileSync(module, 'utf8'), {
    loader: 'ts',
    minifyWhitespace: true,
    legalComments: 'none',
  })
  return code.replace(/'[^'\n]*'|"[^"\n]*"/g, '""')
}

/** A MessageChannel that does not keep this process alive. */
class Channel {
  readonly port1: { onmessage?: () => void } = {}
  readonly port2 = {
    postMessage: () => {
      setImmediate(() => this.port1.onmessage?.())
    },
  }
}

/** The exports of the bundle in a context that has what a worker of a page has, and nothing of Node. */
async function load<Exports = typeof inNode>(source = code): Promise<Exports> {
  const { AbortController, AbortSignal, Blob, fetch, performance, URL } = globalThis
  const { TextDecoder, TextEncoder, clearTimeout, queueMicrotask, setTimeout } = globalThis
  const context = createContext({
    ...{ AbortController, AbortSignal, Blob, fetch, performance, URL, TextDecoder, TextEncoder },
    ...{ clearTimeout, console, queueMicrotask, setTimeout },
    MessageChannel: Channel,
    navigator: { hardwareConcurrency: 2 },
    WorkerGlobalScope: Object,
  })
  // As in a page that is not isolated from others.
  runInContext('globalThis.self = globalThis; delete globalThis.SharedArrayBuffer', context)
  const module = new SourceTextModule(source, {
    context,
    initializeImportMeta: (meta) => {
      meta.url = 'http://127.0.0.1/page.js'
    },
  })
  await module.link(() => {
    throw new Error('it imports something')
  })
  await module.evaluate()
  return module.namespace as Exports
}

describe('the bundle without Node', () => {
  it('sums over two ranks and reports mismatched calls', async () => {
    const page = await load()
    expect(await page.sum()).toEqual([
      [3, 20],
      [3, 20],
    ])
    expect(await page.fail()).toBe('ERR_TSR_MISMATCH')
  })

  it('trains to the recorded losses of all runtimes, to the last bit', async () => {
    const page = await load()
    expect(await page.train()).toEqual(recordedLosses)
  })
})

describeInChromium('the bundle in Chromium', (newPage) => {
  testBundle(newPage, () => code)
})
