import { readFileSync } from 'node:fs'
import { build, type Metafile } from 'esbuild'
import { blocksOf } from '../docs/markdown.ts'
import type { OpenPage } from '../e2e/support/browser.ts'
import { recordedLosses } from '../fixtures/launcher/losses.ts'
import * as inNode from './page.ts'

const root = new URL('../../', import.meta.url)
const blocks = blocksOf('docs/browser.md', readFileSync(new URL('docs/browser.md', root), 'utf8'))

/** The text of the block that contains all of these. */
function block(...parts: string[]): string {
  const [found, ...others] = blocks.filter(({ text }) => parts.every((part) => text.includes(part)))
  if (found === undefined || others.length > 0) throw new Error(`one block with ${parts.join()}`)
  return found.text
}

/** A program for a page, as a bundler makes it. */
async function bundle(program: string): Promise<string> {
  const { outputFiles } = await build({
    stdin: { contents: program, loader: 'ts', resolveDir: root.pathname },
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    logLevel: 'silent',
  })
  return outputFiles[0]!.text
}

/** The bundle of page.ts, and which modules are in it. */
export async function bundlePage(): Promise<{ code: string; metafile: Metafile }> {
  const { outputFiles, metafile } = await build({
    entryPoints: [new URL('page.ts', import.meta.url).pathname],
    bundle: true,
    write: false,
    metafile: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    conditions: ['@tsrun/source'],
    // A page has none of them. What is not used of a package may import them all the same.
    external: ['node:*'],
    loader: { '.wasm': 'binary' },
    logLevel: 'silent',
  })
  return { code: outputFiles[0]!.text, metafile }
}

const policy = [
  "default-src 'none'",
  // Firefox loads an icon.
  "img-src 'self'",
  "script-src 'self' 'wasm-unsafe-eval'",
  'connect-src blob:',
  "worker-src 'self'",
].join('; ')

/** The programs of docs/browser.md do in every browser what the page says. */
export function testPrograms(newPage: OpenPage): void {
  /** Runs a page on a host with these files, and returns what it has printed and what it shows. */
  async function run(files: Record<string, string>, lines: number): Promise<string[]> {
    const { page, complaints } = await newPage()
    const printed: string[] = []
    page.on('console', (message) => printed.push(message.text()))
    await page.route('http://127.0.0.1/**', (route) => {
      const path = new URL(route.request().url()).pathname
      const isPage = path === '/'
      return route.fulfill({
        contentType: isPage ? 'text/html' : 'text/javascript',
        // The page of ten lines has an inline script.
        ...(files['/program.js'] !== undefined && {
          headers: { 'content-security-policy': policy },
        }),
        body: files[path] ?? (isPage ? '<script type="module" src="/program.js"></script>' : ''),
      })
    })
    await page.goto('http://127.0.0.1/')
    const deadline = Date.now() + 20_000
    while (printed.length < lines && Date.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    expect(complaints).toEqual([])
    return printed
  }

  it('shows the sums of the page of ten lines', async () => {
    const page = block('<script type="module">')
    const [, path] = /from '\.(.*)'/.exec(page)!
    const entry = readFileSync(new URL('packages/distributed/dist/browser.js', root), 'utf8')
    const logged = page.replace('</script>', ';console.log(document.body.innerText)</script>')
    expect(await run({ '/': logged, [path!]: entry }, 1)).toEqual(['6 6 6 6'])
  })

  it('prints messages and errors', async () => {
    const program = await bundle(block('onMessage', 'onErrors'))
    expect(await run({ '/program.js': program }, 3)).toEqual(['393216', 'ERR_TSR_MISMATCH', '2'])
  })

  it('injects a fault while ranks run', async () => {
    const program = await bundle(block('faults: (given)'))
    const [code] = await run({ '/program.js': program }, 1)
    expect(code).toMatch(/^ERR_TSR_(PEER_LOST|PEER_FAILED|GROUP_FAILED)$/)
  })

  it('trains, under the content security policy of the page', async () => {
    const [printed] = await run({ '/program.js': await bundle(block('loadWasm', 'pipe.step')) }, 1)
    const [, first, second] = /^\[([\d.]+), ([\d.]+)\]$/.exec(printed!)!
    expect(first).toBe(second)
    expect(Number(first)).toBeGreaterThan(0)
  })

  it('sums over workers', async () => {
    const files = {
      '/program.js': await bundle(block('connectPorts')),
      '/rank.js': await bundle(block('joinPorts({')),
    }
    expect(await run(files, 4)).toEqual(['6', '6', '6', '6'])
  })
}

/** The bundle of page.ts does in every browser what it does in Node. */
export function testBundle(newPage: OpenPage, code: () => string): void {
  it('gives the same sums and errors as Node, and the recorded losses of all runtimes, to the last bit', async () => {
    const { page, complaints } = await newPage()
    await page.route('http://127.0.0.1/**', (route) =>
      route.request().url().endsWith('.js')
        ? route.fulfill({ contentType: 'text/javascript', body: code() })
        : route.fulfill({ contentType: 'text/html', body: '<title>page</title>' }),
    )
    await page.goto('http://127.0.0.1/')
    const results = await page.evaluate(async (url) => {
      const { sum, fail, train } = (await import(url)) as typeof inNode
      return [await sum(), await fail(), await train()]
    }, 'http://127.0.0.1/page.js')
    expect(results).toEqual([await inNode.sum(), await inNode.fail(), recordedLosses])
    expect(complaints).toEqual([])
  })
}
