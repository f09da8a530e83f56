// The imports between the repository's source files, as dependency-cruiser finds them.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { cruise } from 'dependency-cruiser'
import rules from '../../.dependency-cruiser.mjs'

/**
 * @typedef {{ from: string, to: string, typeOnly: boolean }} Import paths from the repository's root
 * @typedef {{ rule: string, from: string, to: string }} Violation
 */

/**
 * Reads every import of the packages and examples below `root`, imports of types included, and
 * applies the rules of .dependency-cruiser.mjs to them.
 *
 * @param {string} root
 * @returns {Promise<{ files: string[], imports: Import[], violations: Violation[] }>}
 */
export async function readImports(root) {
  const folders = ['packages', 'examples'].filter((folder) => existsSync(join(root, folder)))
  const { output } = await cruise(folders, {
    ...rules.options,
    baseDir: root,
    ruleSet: { forbidden: rules.forbidden },
    validate: true,
  })
  const ours = output.modules.filter(({ source }) => isOurs(source))
  return {
    files: ours.map(({ source }) => source).sort(),
    imports: ours.flatMap(({ source, dependencies }) =>
      dependencies
        .filter(({ resolved }) => isOurs(resolved))
        .map(({ resolved, dependencyTypes }) => ({
          from: source,
          to: resolved,
          typeOnly: dependencyTypes.some((type) => type === 'type-only' || type === 'type-import'),
        })),
    ),
    violations: output.summary.violations.map(({ rule, from, to }) => ({
      rule: rule.name,
      from,
      to,
    })),
  }
}

/** @param {string} file */
function isOurs(file) {
  return /^(packages\/[^/]+\/src|examples)\//.test(file)
}
