// Writes the reference of all public names into docs/.vitepress/pages/reference, with a page for each
// entry point of a package, or for each folder of its sources if it has many names. A public name without
// documentation is an error.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Application, Comment, Converter, DeclarationReflection, ReflectionKind } from 'typedoc'

/** The most names of one page. */
const MOST_NAMES = 150

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The entry points: the name to import each by, and its source. */
const entries = readdirSync(join(root, 'packages')).flatMap((folder) => {
  const manifest = readFileSync(join(root, 'packages', folder, 'package.json'), 'utf8')
  const { name, exports = {} } = JSON.parse(manifest)
  return Object.entries(exports)
    .filter(([, target]) => target['@tsrun/source'] !== undefined)
    .map(([entry, target]) => ({
      name: join(name, entry),
      source: join('packages', folder, target['@tsrun/source']),
    }))
})

const app = await Application.bootstrapWithPlugins({
  plugin: ['typedoc-plugin-markdown'],
  tsconfig: join(root, 'docs/.vitepress/tsconfig.json'),
  entryPoints: entries.map(({ source }) => join(root, source)),
  displayBasePath: root,
  name: 'Public names',
  readme: 'none',
  skipErrorChecking: true,
  disableSources: true,
  excludeExternals: true,
  excludePrivate: true,
  validation: { notExported: false },
  outputs: [{ name: 'markdown', path: join(root, 'docs/.vitepress/pages/reference') }],
  groupOrder: ['Functions', 'Variables', 'Classes', '*'],
  router: 'module',
  entryFileName: 'index',
  excludeScopesInPaths: true,
  hidePageHeader: true,
  hideBreadcrumbs: true,
  sanitizeComments: true,
  useCodeBlocks: true,
  expandParameters: true,
  parametersFormat: 'table',
  interfacePropertiesFormat: 'table',
  typeDeclarationFormat: 'table',
  // Its links count rows of tables as headings.
  useHTMLAnchors: true,
})
app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
  for (const module of project.getChildrenByKind(ReflectionKind.Module)) {
    const { name, source } = entries.find(
      ({ source }) => source.replace(/(\/index)?\.ts$/, '') === module.name,
    )
    module.name = name
    const own = module.children.filter((child) => !child.isReference())
    if (own.length > MOST_NAMES) split(project, module, own, dirname(source))
  }
})
const project = await app.convert()
if (project === undefined) process.exit(1)

// The methods of a process group document the free functions of the same names.
for (const variable of project.getReflectionsByKind(ReflectionKind.Variable)) {
  const { objectType } = variable.type?.type === 'indexedAccess' ? variable.type : {}
  if (objectType?.name !== 'ProcessGroup') continue
  const method = { kind: 'inline-tag', tag: '@link', target: objectType.reflection }
  variable.comment = new Comment([
    { ...method, text: `ProcessGroup.${variable.name}` },
    { kind: 'text', text: ' of the default group.' },
  ])
}

const undocumented = project
  .getChildrenByKind(ReflectionKind.Module)
  .flatMap(({ children }) => children)
  .filter((each) => !each.isReference() && !isDocumented(each))
for (const each of undocumented) console.error(`not documented: ${each.getFriendlyFullName()}`)
app.validate(project)
if (undocumented.length > 0 || app.logger.hasErrors()) process.exit(1)
await app.generateOutputs(project)

function isDocumented({ comment, signatures = [] }) {
  return comment !== undefined || signatures.some((signature) => signature.hasComment())
}

/** Moves a module's own names to a page for each folder of its sources, and lists these pages. */
function split(project, module, own, sources) {
  const parts = new Map()
  for (const child of own) {
    const folder = folderOf(project, child, sources)
    if (folder === undefined) continue
    const part = parts.get(folder) ?? addModule(project, `${module.name} ${folder}`)
    parts.set(folder, part)
    module.removeChild(child)
    child.parent = part
    part.addChild(child)
  }
  const links = [...parts.keys()].sort().flatMap((folder) => [
    { kind: 'text', text: '\n- ' },
    { kind: 'inline-tag', tag: '@link', target: parts.get(folder), text: folder },
  ])
  module.comment = new Comment([{ kind: 'text', text: 'Its names, by folder:\n' }, ...links])
}

/** The folder below `sources` that declares a name; undefined: a file of `sources` declares it. */
function folderOf(project, reflection, sources) {
  const { fileName } = project.getSymbolIdFromReflection(reflection) ?? {}
  return /^([^/]+)\//.exec(fileName?.split(`${sources}/`)[1] ?? '')?.[1]
}

function addModule(project, name) {
  const module = new DeclarationReflection(name, ReflectionKind.Module, project)
  project.registerReflection(module)
  project.addChild(module)
  return module
}
