// The pages of the site: which files of the repository become pages, at which path, and with which links.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { addressOf, readManifest } from '../manifests.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The Markdown files and the programs of the examples, by path from the root of the repository. */
export function listPages() {
  const without = ['.github', 'test/fixtures', '**/templates/**', 'examples/live']
  return listFiles(['*.md', 'examples/*.ts', ...without.map((pattern) => `:!${pattern}`)])
}

/** What pages show or link to as it is: images, and web pages that need no build. */
export function listAssets() {
  return listFiles(['docs/images', 'docs/*.html'])
}

/** @param {readonly string[]} patterns of files that git tracks or would track */
function listFiles(patterns) {
  const options = ['ls-files', '--cached', '--others', '--exclude-standard', '-z', '--']
  const names = execFileSync('git', [...options, ...patterns], { cwd: root, encoding: 'utf8' })
  return [...new Set(names.split('\0'))].filter(
    (name) => name !== '' && existsSync(join(root, name)),
  )
}

const onSite = new Set([...listPages(), ...listAssets()])

/**
 * The path of a page or an asset below the root of the site.
 *
 * @param {string} path
 */
export function sitePathOf(path) {
  if (/^docs\/[^/]+\.html$/.test(path)) return path.replace(/^docs/, 'public')
  return path
    .replace(/^docs\//, '')
    .replace(/(^|\/)README\.md$/, '$1index.md')
    .replace(/\.ts$/, '.md')
}

/**
 * Pages that lead to the live page, and to which section of it.
 *
 * @type {Readonly<Record<string, string>>}
 */
export const liveSections = {
  'docs/browser.md': 'collective',
  'docs/algorithms/ring.md': 'collective',
  'docs/pipeline.md': 'pipeline',
  'docs/diagnosis.md': 'faults',
}

/**
 * The Markdown of a page for the site.
 *
 * @param {string} path
 * @param {string} [title] - of a program; default: its path
 */
export function renderPage(path, title = path) {
  const text = readFileSync(join(root, path), 'utf8')
  if (path.endsWith('.ts')) return rewriteLinks(describeProgram(path, text, title), path)
  const markdown = rewriteLinks(text, path)
  const section = liveSections[path]
  return section === undefined ? markdown : markdown.replace(/^# .+$/m, `$&\n\n${liveLink()}`)

  function liveLink() {
    const page = posix.relative(posix.dirname(sitePathOf(path)), 'live.html')
    const target = `${page.startsWith('.') ? page : `./${page}`}#${section}`
    return `<a href="${target}" target="_self">Try it in this browser</a>, with nothing to install.`
  }
}

/**
 * A program as a page: the comment at its beginning, its code, and links to the files that it imports.
 *
 * @param {string} path
 * @param {string} source
 * @param {string} title
 */
export function describeProgram(path, source, title) {
  const lines = source.split('\n')
  const end = lines.findIndex((line) => !line.startsWith('//'))
  const comment = lines.slice(0, end).map((line) => line.replace(/^\/\/ ?/, ''))
  const code = lines.slice(end).join('\n').trim()
  const imports = Array.from(source.matchAll(/ from '(\.[^']+\.ts)'/g), ([, file]) => file)
  const uses = imports.map((file) => `[\`${posix.join(posix.dirname(path), file)}\`](${file})`)
  return [
    `# ${title}`,
    ...comment
      .join('\n')
      .split(/\n{2,}/)
      .filter(Boolean)
      .map(paragraphOf),
    `## The program`,
    `\`\`\`ts\n${code}\n\`\`\``,
    ...(uses.length > 0 ? [`It imports ${uses.join(', ')}.`] : []),
    '',
  ].join('\n\n')

  /** @param {string} text */
  function paragraphOf(text) {
    if (/^ {2}/.test(text)) return `\`\`\`text\n${text.replace(/^ {2}/gm, '')}\n\`\`\``
    const isHere = (/** @type {string} */ file) => existsSync(join(root, file))
    return text.replace(/\b(?:examples|docs)\/[\w./-]+\.(?:md|ts)\b/g, (file) =>
      isHere(file) ? `[${file}](${posix.relative(posix.dirname(path), file)})` : file,
    )
  }
}

/**
 * Makes the relative links of a file lead to pages and assets of the site, and to the repository where
 * the site has neither.
 *
 * @param {string} markdown
 * @param {string} path - of the file
 */
export function rewriteLinks(markdown, path) {
  /** @type {(target: string) => string} */
  const siteLink = (target) => {
    if (/^([a-z][a-z+.-]*:|\/\/|#)/i.test(target)) return target
    const [, name = '', rest = ''] = /^([^#?]*)(.*)$/.exec(target) ?? []
    const file = posix.join(posix.dirname(path), decodeURIComponent(name)).replace(/\/$/, '')
    if (!onSite.has(file)) return `${repositoryAddress()}/blob/main/${file}${rest}`
    const to = sitePathOf(file).replace(/^public\//, '')
    const relative = posix.relative(posix.dirname(sitePathOf(path)), to)
    return (relative.startsWith('.') ? relative : `./${relative}`) + rest
  }
  const code = /(^```[^]*?^```$|`[^`\n]*`)/m
  return markdown
    .split(code)
    .map((part, i) => {
      if (i % 2 === 1) return part
      return part
        .replace(/\[([^\]]+)\]\(([^()\s]+\.html)\)/g, (_, text, target) => plainLink(target, text))
        .replace(/(\]\(\s*<?)([^\s)>]+)/g, (_, start, target) => start + siteLink(target))
        .replace(/^( *\[[^\]]+\]: *<?)([^\s>]+)/gm, (_, start, target) => start + siteLink(target))
        .replace(/\b(src|srcset|href)="([^"]+)"(?! target)/g, (_, name, target) => {
          return `${name}="${siteLink(target)}"`
        })
    })
    .join('')

  /** A link that the browser follows itself, because the page is none of VitePress. */
  function plainLink(/** @type {string} */ target, /** @type {string} */ text) {
    if (/^[a-z]+:/.test(target)) return `[${text}](${target})`
    return `<a href="${siteLink(target)}" target="_self">${text}</a>`
  }
}

/** Where the sources are published: the repository whose workflow runs, otherwise as the packages name it. */
function repositoryAddress() {
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = process.env
  return name === undefined ? addressOf(readManifest().repository.url) : `${server}/${name}`
}

/**
 * The anchor that GitHub gives a heading.
 *
 * @param {string} heading
 */
export function anchorOf(heading) {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replaceAll(' ', '-')
}
