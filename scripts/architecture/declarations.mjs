// What the source files declare, and in how many places a collective is declared.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'

const objectLiteral = ts.SyntaxKind.ObjectLiteralExpression

/**
 * The functions, classes, interfaces and variables that a file declares, as `name`, and the members of
 * classes, interfaces and objects, as `Class.member`.
 *
 * @param {string} path
 * @returns {string[]} none if there is no such file
 */
export function declarationsOf(path) {
  if (!existsSync(path)) return []
  /** @type {string[]} */
  const names = []
  const visit = (/** @type {ts.Node} */ node, /** @type {string} */ prefix) => {
    const name = nameOf(node)
    if (name !== undefined) names.push(`${prefix}${name}`)
    const hasMembers =
      ts.isClassDeclaration(node) ||
      ts.isInterfaceDeclaration(node) ||
      (ts.isVariableDeclaration(node) && node.initializer?.kind === objectLiteral)
    const inner = hasMembers && name !== undefined ? `${name}.` : prefix
    ts.forEachChild(node, (child) => visit(child, inner))
  }
  visit(ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest), '')
  return names
}

/** @param {ts.Node} node */
function nameOf(node) {
  if (ts.isConstructorDeclaration(node)) return 'constructor'
  const isDeclaration =
    ts.isFunctionDeclaration(node) ||
    ts.isClassDeclaration(node) ||
    ts.isInterfaceDeclaration(node) ||
    ts.isTypeAliasDeclaration(node) ||
    ts.isMethodDeclaration(node) ||
    ts.isMethodSignature(node) ||
    ts.isPropertyDeclaration(node) ||
    ts.isPropertySignature(node) ||
    ts.isVariableDeclaration(node)
  const name = isDeclaration ? node.name : undefined
  const isText = name !== undefined && (ts.isIdentifier(name) || ts.isPrivateIdentifier(name))
  return isText ? name.text : undefined
}

/**
 * The files of packages/distributed that declare a collective on arrays: its signature, its
 * implementation and its free functions, blocking or not. Those of the same name on objects are made of
 * these.
 *
 * @param {string} root of the repository
 * @param {readonly string[]} files of the repository
 * @param {string} collective
 * @returns {string[]}
 */
export function placesOf(root, files, collective) {
  const pattern = new RegExp(`(^|\\.)${collective}(Sync)?$`)
  return files.filter(
    (file) =>
      /^packages\/distributed\/src\/([^/]+|groups\/(?!objects\/).*)$/.test(file) &&
      declarationsOf(join(root, file)).some((name) => pattern.test(name)),
  )
}
