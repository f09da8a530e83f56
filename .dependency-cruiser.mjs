// Which file may import which. `npm run lint` checks these rules, and beside them that there are no
// import cycles: scripts/architecture/check.mjs. docs/architecture.md draws what they lead to.

/** The packages, each with those that it may import. */
export const packages = {
  core: [],
  native: ['core'],
  store: ['core'],
  distributed: ['core', 'native', 'store'],
  mpi: ['core', 'native', 'store', 'distributed'],
  training: ['core', 'native', 'distributed'],
  data: ['core', 'distributed', 'training'],
  tensorflow: ['core', 'training'],
  layers: ['core', 'distributed', 'training'],
  models: ['core', 'distributed', 'training'],
  observe: ['core', 'distributed'],
  launcher: ['core', 'native', 'store', 'distributed', 'training', 'observe'],
  doctor: ['core', 'native', 'store', 'training', 'launcher'],
  create: ['launcher'],
}

const inPackage = (...names) => `^packages/(${names.join('|')})/`

/** What a package must not touch, so that it stays what it is for. */
function keepsTo(name, comment, to) {
  return { name: `${name}-keeps-to-its-subject`, comment, from: { path: inPackage(name) }, to }
}

const tensorflow = { path: '(^|/)node_modules/@tensorflow/' }
const sockets = '^(net|http|https|http2|dgram|tls)$'

const forbidden = [
  ...Object.entries(packages)
    .filter(([, allowed]) => allowed.length < Object.keys(packages).length - 1)
    .map(([name, allowed]) => ({
      name: `${name}-imports`,
      comment:
        allowed.length === 0
          ? `${name} imports no other package.`
          : `Of the packages, ${name} imports ${allowed.join(', ')} and no other.`,
      from: { path: inPackage(name) },
      to: { path: '^packages/', pathNot: inPackage(name, ...allowed) },
    })),
  {
    name: 'packages-by-name',
    comment: 'A package imports another by its name (@tsrun/core), not by a path into its files.',
    from: { path: '^packages/([^/]+)/' },
    to: { dependencyTypes: ['local'], pathNot: '^packages/$1/' },
  },
  {
    name: 'examples-by-name',
    comment: 'An example imports packages by their names, as a user does.',
    from: { path: '^examples/' },
    to: {
      dependencyTypes: ['local'],
      dependencyTypesNot: ['aliased-workspace'],
      pathNot: '^examples/',
    },
  },
  {
    name: 'declared',
    comment: "What a package imports is in its package.json, and not only among the repository's.",
    // launcher/src/rank/typescript requires the tsx of the user's project, and the esbuild of that tsx; what
    // the page of the dashboard and the core import becomes a part of them.
    from: {
      path: '^packages/',
      pathNot:
        '^packages/(launcher/src/rank/typescript/|observe/page/|core/src/(codec|msgpack-values|nearest-name)\\.ts$)',
    },
    to: {
      dependencyTypes: ['npm-no-pkg', 'npm-unknown', 'npm-dev'],
      dependencyTypesNot: ['npm', 'npm-optional', 'npm-peer'],
    },
  },
  {
    name: 'resolvable',
    comment: 'An import leads to a file; what cannot be found cannot be checked either.',
    from: {},
    to: { couldNotResolve: true },
  },
  keepsTo('core', 'core opens no socket, starts no process and knows no tensors.', {
    path: [sockets, '^child_process$', tensorflow.path],
  }),
  keepsTo('distributed', 'distributed does not know TensorFlow.js.', tensorflow),
  keepsTo('training', 'training opens no socket: distributed does.', { path: sockets }),
  keepsTo('launcher', 'launcher does not know TensorFlow.js.', tensorflow),
  keepsTo('doctor', 'doctor does not know TensorFlow.js.', tensorflow),
  {
    name: 'launcher-plans',
    comment: 'Of training, launcher has what is computed without a model.',
    from: { path: inPackage('launcher') },
    to: {
      path: inPackage('training'),
      pathNot: '^packages/training/(src|dist)/planning\\.(ts|js|d\\.ts)$',
      dependencyTypesNot: ['type-only', 'type-import'],
    },
  },
  {
    name: 'only-records',
    comment: 'Of distributed, launcher and observe have what ranks write; ranks import the rest.',
    from: { path: inPackage('launcher', 'observe') },
    to: {
      path: inPackage('distributed'),
      pathNot: '^packages/distributed/(src|dist)/record/index\\.(ts|js|d\\.ts)$',
    },
  },
  {
    name: 'mpi-is-a-plug-in',
    comment: 'Of distributed, mpi has what a transport needs, and nothing else.',
    from: { path: inPackage('mpi') },
    to: {
      path: inPackage('distributed'),
      pathNot: '^packages/distributed/(src|dist)/transport\\.(ts|js|d\\.ts)$',
    },
  },
  {
    name: 'doctor-is-a-plug-in',
    comment: 'Of launcher, doctor has what a package with commands needs; of training, types.',
    from: { path: inPackage('doctor') },
    to: {
      path: inPackage('launcher', 'training'),
      pathNot: '^packages/launcher/(src|dist)/host\\.(ts|js|d\\.ts)$',
      dependencyTypesNot: ['type-only', 'type-import'],
    },
  },
  {
    name: 'observe-is-optional',
    comment:
      'The launcher loads observe where it is installed, and otherwise knows only its types.',
    from: { path: inPackage('launcher') },
    to: { path: inPackage('observe'), dependencyTypesNot: ['type-only', 'type-import'] },
  },
  {
    name: 'records-are-plain',
    comment:
      'record/ is part of the program tsrun: of distributed, it imports only the names of operations.',
    from: { path: '^packages/distributed/src/record/' },
    to: {
      path: '^packages/',
      pathNot: '^packages/(core/|native/|distributed/src/(record/|operation\\.ts$))',
    },
  },
  {
    name: 'plans-are-pure',
    comment:
      'Schedules, simulations and layouts are computed without TensorFlow.js and without ranks.',
    from: {
      path: '^packages/training/src/(planning|planning/.*|parallel/pipeline/schedule/.*)\\.ts$',
    },
    to: {
      path: '^packages/|(^|/)node_modules/',
      pathNot: '^packages/(core/|training/src/(planning/|parallel/pipeline/schedule/))',
    },
  },
  {
    name: 'models-are-plain',
    comment: 'nn/ knows the contract of a backend, and no backend: models run on all of them.',
    from: { path: '^packages/training/src/nn/' },
    to: { path: '^packages/training/src/backend/((wasm|webgpu)/|cpu\\.ts$)' },
  },
  {
    name: 'algorithms-are-pure',
    comment:
      'algorithms/ says what is sent and reduced, in terms of its own contract of a channel; ' +
      'engine and transports, which carry it out, import the algorithms and not the other way.',
    from: { path: '^packages/distributed/src/algorithms/' },
    to: {
      path: '^packages/distributed/src/(engine|transports|runners|groups|diagnosis)/',
    },
  },
]

/** @type {import('dependency-cruiser').IConfiguration} */
export default {
  forbidden: forbidden.map((rule) => ({ severity: 'error', ...rule })),
  options: {
    doNotFollow: { path: 'node_modules' },
    // AssemblyScript has imports of its own; dist/ is made from src/.
    exclude: { path: ['\\.as\\.ts$', '^packages/[^/]+/(dist|templates)/'] },
    // Imports of types are imports, too.
    tsPreCompilationDeps: true,
    skipAnalysisNotInRules: true,
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      // The condition under which a package is its sources.
      conditionNames: ['@tsrun/source', 'types', 'import', 'node', 'default'],
      mainFields: ['types', 'module', 'main'],
      extensions: ['.ts', '.mjs', '.js', '.d.ts', '.json'],
    },
  },
}
