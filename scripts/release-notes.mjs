// Prints what CHANGELOG.md says of a version, for its release: node scripts/release-notes.mjs v0.1.0
import { readFileSync } from 'node:fs'
import { addressOf, readManifest } from './manifests.mjs'

const [tag = ''] = process.argv.slice(2)
const sections = readFileSync(new URL('../CHANGELOG.md', import.meta.url), 'utf8').split(/^## /m)
const heading = `[${tag.replace(/^v/, '')}]`
const section = sections.find((each) => each.startsWith(heading))
if (section === undefined) throw new Error(`CHANGELOG.md has no section ${heading}`)
// Links lead to the files of the tag.
const files = `${addressOf(readManifest().repository.url)}/blob/${tag}/`
const notes = section.slice(section.indexOf('\n')).replaceAll(/\]\((?!https?:)/g, `](${files}`)
console.log(notes.trim())
