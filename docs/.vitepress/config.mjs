// How VitePress builds the site: npm run site, which gathers the pages in docs/.vitepress/pages.
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { anchorOf, sitePathOf } from '../../scripts/site/pages.mjs'
import { sidebar } from './sidebar.mjs'

const pages = fileURLToPath(new URL('pages', import.meta.url))
const flags = { text: 'Flags', link: '/launcher#flags' }

/** @type {import('vitepress').UserConfig} */
export default {
  title: 'tsrun',
  description:
    'torchrun, torch.distributed and data, tensor and pipeline parallel training for Node.js',
  srcDir: '.vitepress/pages',
  cacheDir: 'node_modules/.vitepress',
  markdown: {
    // Links of the repository have the anchors of GitHub.
    anchor: { slugify: anchorOf },
    // Nothing but Markdown, as on GitHub.
    attrs: { disable: true },
    config: (md) => {
      md.core.ruler.disable('emoji')
      md.core.ruler.push('sentences', widenSentences)
      // Indented code scrolls as that in fences does.
      md.renderer.rules.code_block = (tokens, i, ...rest) => {
        tokens[i].info = 'text'
        return md.renderer.rules.fence(tokens, i, ...rest)
      }
    },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Guide', link: '/' },
      { text: 'Courses', link: '/examples/' },
      { text: 'Reference', link: '/reference/' },
      { text: 'Comparison', link: '/comparison' },
      { text: 'Decisions', link: '/decisions/' },
      { text: 'Live', link: '/live.html', target: '_self' },
    ],
    sidebar: sidebar.map(({ text, open = false, items }) => ({
      text,
      collapsed: !open,
      items: [...(text === 'Reference' ? [publicNames(), flags] : []), ...items.map(itemOf)],
    })),
  },
  vite: { build: { chunkSizeWarningLimit: 4096 } },
}

/** @param {import('./sidebar.mjs').Entry} entry */
function itemOf(entry) {
  const [path, title] = typeof entry === 'string' ? [entry] : entry
  const page = sitePathOf(path)
  return { text: title ?? headingOf(page), link: `/${page.replace(/index\.md$/, '')}` }
}

/** On a narrow screen a table scrolls, rather than breaking a sentence into a column of words. */
function widenSentences({ tokens }) {
  for (const [i, token] of tokens.entries()) {
    const isSentence = token.type === 'td_open' && tokens[i + 1].content.length > 60
    if (isSentence) token.attrSet('style', 'min-width: 14rem')
  }
}

/** The first heading of a page, without its code marks. */
function headingOf(/** @type {string} */ page) {
  return /^# (.+)$/m.exec(readFileSync(`${pages}/${page}`, 'utf8'))[1].replaceAll('`', '')
}

/** The pages that typedoc writes, for the entry points of the packages. */
function publicNames() {
  const files = readdirSync(`${pages}/reference`, { recursive: true, encoding: 'utf8' })
  const items = files
    .filter((file) => file.endsWith('.md') && file !== 'index.md')
    .map((file) => ({ text: file.replace(/(\/index)?\.md$/, ''), link: `/reference/${file}` }))
    .sort((a, b) => (a.text < b.text ? -1 : 1))
  return { text: 'Public names', link: '/reference/', collapsed: true, items }
}
