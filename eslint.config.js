import jest from 'eslint-plugin-jest'
import n from 'eslint-plugin-n'
import { defineConfig } from 'eslint/config'
import tseslint from 'typescript-eslint'
import { prose } from './scripts/lint/prose.mjs'

const noInstanceof = {
  selector: "BinaryExpression[operator='instanceof'][right.name!='Error']",
  message:
    'instanceof fails across realms (workers, Jest): compare error codes, use ArrayBuffer.isView or util.types.',
}

const noRecursiveMkdir = {
  selector: "CallExpression[callee.name=/^mkdir/] Property[key.name='recursive']",
  message: 'In /proc, Node never returns from it: use makeFolders of @tsrun/core.',
}

const noSkip = {
  selector:
    "MemberExpression[object.name=/^(describe|it|test)$/][property.name='skip'], CallExpression[callee.name=/^(it|test)/] > :first-child.arguments[value=/^skipped/]",
  message: 'needing() of test/needs.ts counts tests as skipped and says what is missing.',
}

const noInternals = {
  selector:
    '.source:matches([value=/^[.].*packages.[a-z]+.(src|page)./], :has(TemplateElement[value.raw=/packages/]))',
  message:
    'Import what a package exports by its name, and the rest from test/internals: if its file moves, one line changes there.',
}

/** What only Node can run. Everything else of these packages also runs in a web page. */
const portable = {
  files: [
    'packages/{core,distributed,store,training}/src/**/*.ts',
    'packages/launcher/src/{report,job/failure/*,logs/pretty-line,protocol/describe-error}.ts',
  ],
  ignores: [
    'packages/launcher/src/job/failure/{exit-codes,flight-records}.ts',
    'packages/core/src/{host,node}/**',
    'packages/distributed/src/{groups/join,host,transports/shared-memory}/**',
    'packages/distributed/src/record/{flight-folder,rank-trace,span-file,status-page}.ts',
    'packages/distributed/src/runners/{engine-thread,inline-runner,status-page,worker-main,worker-runner}.ts',
    'packages/distributed/src/transports/{node-transport,sealed-stream}.ts',
    'packages/training/src/backend/webgpu/**',
    'packages/training/src/{checkpoint,data,host,metrics}/**',
    'packages/training/src/trainer/interruption.ts',
    'packages/store/src/{addresses,admission,client,connection,secure-sockets,server}.ts',
  ],
}

const inNodeAlone =
  'A web page has none: use `host` of @tsrun/core, or another import with a browser condition.'

export default defineConfig(
  // Templates are written as their users write.
  {
    ignores: [
      '**/dist/**',
      'coverage/**',
      'docs/.vitepress/{pages,.temp}/**',
      '**/*.as.ts',
      'packages/launcher/templates/**',
    ],
  },
  {
    files: ['**/*.ts', '**/*.tsx', '**/*.js', '**/*.mjs'],
    plugins: { n, prose },
    settings: { n: { version: '^20.19.0 || >=22.12.0' } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      'n/prefer-node-protocol': 'error',
      'n/no-unsupported-features/node-builtins': ['error', { allowExperimental: true }],
      'prose/phrases': 'error',
      eqeqeq: 'error',
      'no-var': 'error',
      'object-shorthand': 'error',
      'prefer-const': 'error',
      'no-restricted-syntax': ['error', noInstanceof],
    },
  },
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: {
        project: [
          'test/tsconfig.json',
          'packages/observe/page/tsconfig.json',
          'examples/live/tsconfig.json',
        ],
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/prefer-promise-reject-errors': ['error', { allowThrowingUnknown: true }],
      '@typescript-eslint/triple-slash-reference': ['error', { path: 'always' }],
      // Inner loops over typed arrays index within bounds that no type can express.
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/consistent-type-definitions': 'off',
    },
  },
  {
    files: ['packages/*/src/**/*.ts'],
    rules: {
      'no-restricted-syntax': ['error', noInstanceof, noRecursiveMkdir],
      'no-restricted-properties': [
        'error',
        {
          object: 'AbortSignal',
          property: 'timeout',
          message: 'Node 20 may garbage-collect it inside AbortSignal.any().',
        },
      ],
    },
  },
  {
    ...portable,
    rules: {
      '@typescript-eslint/no-restricted-imports': [
        'error',
        { patterns: [{ regex: '^node:', allowTypeImports: true, message: inNodeAlone }] },
      ],
      'no-restricted-globals': [
        'error',
        ...['process', 'Buffer', 'setImmediate', 'require'].map((name) => ({
          name,
          message: inNodeAlone,
        })),
      ],
    },
  },
  {
    files: ['packages/*/src/host/*browser.ts', 'examples/live/**'],
    rules: { 'n/no-unsupported-features/node-builtins': 'off' },
  },
  {
    // Declarations of foreign code follow its style.
    files: ['**/*.d.ts'],
    rules: {
      'no-var': 'off',
      '@typescript-eslint/no-empty-object-type': 'off',
      '@typescript-eslint/prefer-function-type': 'off',
    },
  },
  {
    files: ['test/**/*.ts'],
    ignores: ['test/needs.ts', 'test/internals/**'],
    rules: { 'no-restricted-syntax': ['error', noInstanceof, noSkip, noInternals] },
  },
  {
    files: ['test/**/*.test.ts'],
    extends: [jest.configs['flat/recommended']],
    rules: {
      // Helpers contain assertions, too, and tests of failures assert in catch blocks.
      'jest/expect-expect': 'off',
      'jest/no-conditional-expect': 'off',
      'jest/no-standalone-expect': 'off',
      // Matchers such as expect.objectContaining are typed any.
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
    },
  },
)
