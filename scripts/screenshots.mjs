// node scripts/screenshots.mjs [job] [live] [site]
//
// Takes the pictures in docs/images with the Chromium of this machine. The default is `job live`.
// job: the dashboard while a job trains and after one of its ranks was killed, a job that was recorded,
// and the schedule explorer. live: the page of npm run live. Check them before you commit them.
// site: takes pictures of the site that npm run site has built, in a temporary folder, for a visual check.

import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { chromium } from 'playwright-core'

const root = fileURLToPath(new URL('..', import.meta.url))
const images = join(root, 'docs/images')
/** A picture in the documentation is smaller. */
const MOST_BYTES = 150_000

const executablePath = (process.env['PATH'] ?? '')
  .split(delimiter)
  .map((folder) => join(folder, 'chromium'))
  .find((path) => statSync(path, { throwIfNoEntry: false })?.isFile())
if (executablePath === undefined) throw new Error('there is no chromium')
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] })
const parts = process.argv.slice(2)
try {
  if (parts.length === 0 || parts.includes('job')) await takeJob()
  if (parts.length === 0 || parts.includes('live')) await takeLive()
  if (parts.includes('site')) await takeSite()
} finally {
  await browser.close()
}

async function takeJob() {
  const traces = mkdtempSync(join(tmpdir(), 'tsrun-screenshots-'))
  const tsrun = join(root, 'packages/launcher/bin/tsrun.js')
  const job = spawn(
    process.execPath,
    [
      ...[tsrun, '--nproc', '4', '--grace', '1'],
      ...['--trace', traces, '--dashboard', '0', '--dashboard-linger', '60'],
      ...['examples/pipeline.ts', '--epochs', '100'],
    ],
    { cwd: root, stdio: ['ignore', 'ignore', 'pipe'] },
  )
  const ended = new Promise((resolve) => job.once('exit', resolve))
  let view
  try {
    const live = await open(await announced(job.stderr, /dashboard: (http:\S+)/), {
      width: 1280,
      height: 1180,
    })
    // The charts show nothing before some time has passed.
    await live.getByRole('img', { name: /^Step \d+ of 4 ranks/ }).waitFor()
    await pause(20_000)
    await take(live, 'dashboard')
    const url = live.url()
    const dark = await open(url, { width: 1280, height: 1180, colorScheme: 'dark' }, live)
    const narrow = await open(url, { width: 390, height: 1400 }, live)
    for (const page of [dark, narrow]) {
      await page.getByRole('img', { name: /^Step \d+ of 4 ranks/ }).waitFor()
    }
    await pause(3000)
    await take(dark, 'dashboard-dark')
    await take(narrow, 'dashboard-narrow')
    const { stdout } = spawnSync(process.execPath, [tsrun, 'ps', '--json'], { encoding: 'utf8' })
    const jobs = JSON.parse(stdout)
    const own = jobs.find((/** @type {any} */ { launcherPid }) => launcherPid === job.pid)
    const { pid } = own.ranks.find((/** @type {any} */ { rank }) => rank === 2)
    process.kill(pid, 'SIGKILL')
    await live.getByRole('region', { name: 'Report of the failure' }).waitFor()
    await live.getByRole('status').getByText('failed').waitFor()
    await take(live, 'dashboard-failure')
    const explorer = await open(pathToFileURL(join(root, 'docs/schedules.html')).href, {
      width: 1280,
      height: 900,
    })
    await pause(1000)
    await take(explorer, 'explorer')
    spawnSync(
      process.execPath,
      [tsrun, '--nproc', '4', '--trace', traces, 'examples/pipeline.ts', '--epochs', '1'],
      { cwd: root },
    )
    view = spawn(process.execPath, [tsrun, 'view', traces], { stdio: ['ignore', 'pipe', 'ignore'] })
    const address = await announced(view.stdout, /^(http:\S+)\n/)
    const recorded = await open(address, { width: 1280, height: 800 })
    await recorded.getByRole('img', { name: /^Step \d+ of 4 ranks/ }).waitFor()
    await pause(1000)
    await take(recorded, 'view')
  } finally {
    view?.kill('SIGINT')
    job.kill('SIGTERM')
    await ended
    rmSync(traces, { recursive: true, force: true })
  }
}

/** The live page after it has trained, with a collective on its way. */
async function takeLive() {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-screenshots-'))
  const file = join(folder, 'live.html')
  try {
    spawnSync(process.execPath, [join(root, 'scripts/live.mjs'), '--out', file])
    /** @type {[name: string, width: number, height: number, colorScheme: 'dark' | 'light', part: string][]} */
    const looks = [
      ['live', 1280, 800, 'light', '#collective'],
      ['live-dark', 900, 710, 'dark', '#pipeline'],
      ['live-narrow', 390, 800, 'light', '#collective'],
    ]
    for (const [name, width, most, colorScheme, part] of looks) {
      const look = { width, height: 900, colorScheme }
      const page = await open(pathToFileURL(file).href, look)
      await page.waitForSelector('.losses[data-done=true]', { state: 'attached' })
      await page.getByLabel('Draw').selectOption('fast')
      await page.getByRole('button', { name: /^Train/ }).click()
      await page.waitForSelector('.losses[data-done=false]', { state: 'attached' })
      await page.waitForSelector('.losses[data-done=true]', { state: 'attached' })
      await page.locator('.figure').focus()
      for (let step = 0; step < 16; step++) await page.keyboard.press('ArrowRight')
      await page.evaluate('scrollTo(0, 0)')
      const box = await page.locator(part).boundingBox()
      if (box === null) throw new Error(`the page has no ${part}`)
      await take(page, name, { ...box, height: Math.min(box.height, most) })
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Pages of the site at two widths, in light and in dark colours, and its search. */
async function takeSite() {
  const site = join(root, 'docs/.vitepress/dist')
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-site-'))
  const paths = ['/', '/examples/', '/browser.html', '/algorithms/ring.html', '/reference/']
  for (const width of [1280, 390]) {
    for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme })
      await context.route('http://127.0.0.1/**', (route) => {
        const { pathname } = new URL(route.request().url())
        const path = join(site, pathname.replace(/\/$/, '/index.html'))
        return route.fulfill(existsSync(path) ? { path } : { status: 404 })
      })
      const page = await context.newPage()
      for (const path of paths) {
        await page.goto(`http://127.0.0.1${path}`, { waitUntil: 'networkidle' })
        const name = path.replaceAll(/\W+/g, '-')
        await page.screenshot({ path: join(folder, `site${name}${width}-${colorScheme}.png`) })
      }
      await page.keyboard.press('Control+k')
      await page.getByRole('searchbox').fill('ring')
      await page.locator('.results li').first().waitFor()
      await page.screenshot({ path: join(folder, `search-${width}-${colorScheme}.png`) })
      await context.close()
    }
  }
  console.log(folder)
}

/**
 * The address that a process prints.
 *
 * @param {import('node:stream').Readable} stream
 * @param {RegExp} pattern
 * @returns {Promise<string>}
 */
async function announced(stream, pattern) {
  let text = ''
  return await new Promise((resolve, reject) => {
    stream.setEncoding('utf8').on('data', (part) => {
      text += part
      const url = pattern.exec(text)?.[1]
      if (url !== undefined) resolve(url)
    })
    stream.once('end', () => {
      reject(new Error(`no address: ${text}`))
    })
  })
}

/**
 * @param {string} url
 * @param {{ width: number, height: number, colorScheme?: 'dark' | 'light' }} look
 * @param {import('playwright-core').Page} [known] - a page that has exchanged the token for its cookie
 */
async function open(url, { width, height, colorScheme = 'light' }, known) {
  const storageState = await known?.context().storageState()
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme,
    ...(storageState === undefined ? {} : { storageState }),
  })
  const page = await context.newPage()
  await page.goto(url)
  return page
}

/**
 * @param {import('playwright-core').Page} page
 * @param {string} name
 * @param {{ x: number, y: number, width: number, height: number }} [clip] - a part of the whole page
 */
async function take(page, name, clip) {
  const path = join(images, `${name}.png`)
  await page.screenshot({ path, ...(clip && { clip, fullPage: true }) })
  const { size } = statSync(path)
  if (size > MOST_BYTES) throw new Error(`${path} has ${size} bytes`)
  console.log(`${path}: ${size} bytes`)
}
