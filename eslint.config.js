import n from 'eslint-plugin-n'
import jest from 'eslint-plugin-jest'
import tseslint from 'typescript-eslint'

const realms = 'Errors and arrays cross realms (workers, Jest): compare codes, Symbol.toStringTag or ArrayBuffer.isView.'

export default tseslint.config(
  { ignores: ['**/dist/**', 'coverage/**', '**/*.as.ts'] },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    plugins: { n },
    languageOptions: {
      parserOptions: {
        projectService: { allowDefaultProject: [] },
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      'n/prefer-node-protocol': 'error',
      '@typescript-eslint/triple-slash-reference': ['error', { path: 'always' }],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/consistent-type-definitions': 'off',
      'no-restricted-syntax': [
        'error',
        { selector: "BinaryExpression[operator='instanceof'][right.name!='Error']", message: realms },
      ],
    },
  },
  {
    files: ['test/**/*.ts'],
    plugins: { jest },
    rules: {
      ...jest.configs['flat/recommended'].rules,
      'jest/expect-expect': 'off',
      'jest/no-conditional-expect': 'off',
      'jest/no-standalone-expect': 'off',
    },
  },
  {
    // Declarations of what others wrote follow their shape.
    files: ['**/*.d.ts'],
    rules: {
      'no-var': 'off',
      '@typescript-eslint/no-empty-object-type': 'off',
      '@typescript-eslint/prefer-function-type': 'off',
    },
  },
  {
    files: ['**/*.js', '**/*.mjs'],
    extends: [tseslint.configs.disableTypeChecked],
  },
)
