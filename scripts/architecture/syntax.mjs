// What is counted in a source file: its tokens, the names that it exports, the programs in its strings.
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import ts from 'typescript'

/**
 * @param {string} path
 * @returns {ts.SourceFile} whose nodes know their parents
 */
export function parse(path) {
  return ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true)
}

/**
 * The number of leaves of the syntax tree. Comments are none, those for documentation neither.
 *
 * @param {ts.SourceFile} source
 */
export function tokensOf(source) {
  const count = (/** @type {ts.Node} */ node) => {
    if (ts.isJSDoc(node)) return 0
    const children = node.getChildren(source)
    if (children.length === 0) return node.getWidth(source) > 0 ? 1 : 0
    return children.reduce((sum, child) => sum + count(child), 0)
  }
  return count(source)
}

/**
 * The names that a module exports, also those that it passes on by `export *`.
 *
 * @param {string} path
 * @returns {{ name: string, isType: boolean }[]}
 */
export function exportsOf(path) {
  return parse(path).statements.flatMap((statement) => {
    if (ts.isExportDeclaration(statement)) return namesOf(path, statement)
    const isExported =
      ts.canHaveModifiers(statement) &&
      ts.getModifiers(statement)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)
    if (isExported !== true) return []
    const isType = ts.isInterfaceDeclaration(statement) || ts.isTypeAliasDeclaration(statement)
    const names = ts.isVariableStatement(statement)
      ? statement.declarationList.declarations.flatMap(({ name }) =>
          ts.isObjectBindingPattern(name) ? name.elements.map((each) => each.name) : [name],
        )
      : [/** @type {ts.FunctionDeclaration} */ (statement).name]
    return names.map((name) => ({ name: name?.getText() ?? 'default', isType }))
  })
}

/**
 * @param {string} path
 * @param {ts.ExportDeclaration} declaration
 */
function namesOf(path, { exportClause, moduleSpecifier, isTypeOnly }) {
  if (exportClause === undefined) {
    return exportsOf(join(dirname(path), /** @type {ts.StringLiteral} */ (moduleSpecifier).text))
  }
  if (ts.isNamespaceExport(exportClause)) {
    return [{ name: exportClause.name.text, isType: isTypeOnly }]
  }
  return exportClause.elements.map((element) => ({
    name: element.name.text,
    isType: isTypeOnly || element.isTypeOnly,
  }))
}

/**
 * Whether a string or template of the file is a program: JavaScript that calls `require` or a function of
 * `process`, which no compiler and no linter sees.
 *
 * @param {ts.SourceFile} source
 */
export function hasProgramInString(source) {
  const visit = (/** @type {ts.Node} */ node) => {
    const text =
      ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)
        ? node.text
        : ts.isTemplateExpression(node)
          ? [
              node.head.text,
              ...node.templateSpans.map(({ literal }) => `__filled${literal.text}`),
            ].join('')
          : ''
    return isProgram(text) || ts.forEachChild(node, (child) => visit(child) || undefined) === true
  }
  return visit(source)
}

/** @param {string} text */
function isProgram(text) {
  if (!/\brequire\(|\bprocess\.\w/.test(text)) return false
  const source = ts.createSourceFile('text.js', text, ts.ScriptTarget.Latest, true)
  const { parseDiagnostics } = /** @type {{ parseDiagnostics?: unknown[] }} */ (
    /** @type {unknown} */ (source)
  )
  if (parseDiagnostics?.length !== 0) return false
  const calls = (/** @type {ts.Node} */ node) =>
    (ts.isCallExpression(node) && /^(require|process\..*)$/.test(node.expression.getText())) ||
    ts.forEachChild(node, (child) => calls(child) || undefined) === true
  return calls(source)
}

/**
 * The classes that implement an interface, or one that extends it, and do not inherit that from another
 * class; or that have its name.
 *
 * @param {readonly ts.SourceFile[]} sources
 * @param {string} name
 * @returns {string[]}
 */
export function implementationsOf(sources, name) {
  const declarations = sources.flatMap((source) =>
    source.statements.filter(
      (statement) => ts.isClassDeclaration(statement) || ts.isInterfaceDeclaration(statement),
    ),
  )
  const contracts = new Set([name])
  for (const { name: own, heritageClauses } of declarations.filter(ts.isInterfaceDeclaration)) {
    if (typesOf(heritageClauses, ts.SyntaxKind.ExtendsKeyword).includes(name)) {
      contracts.add(own.text)
    }
  }
  return declarations
    .filter(ts.isClassDeclaration)
    .filter(
      ({ name: own, heritageClauses }) =>
        own?.text === name ||
        typesOf(heritageClauses, ts.SyntaxKind.ImplementsKeyword).some((type) =>
          contracts.has(type),
        ),
    )
    .map(({ name: own }) => own?.text ?? 'default')
}

/**
 * @param {ts.NodeArray<ts.HeritageClause> | undefined} clauses
 * @param {ts.SyntaxKind} keyword
 */
function typesOf(clauses, keyword) {
  return (clauses ?? [])
    .filter(({ token }) => token === keyword)
    .flatMap(({ types }) => types.map(({ expression }) => expression.getText()))
}

/**
 * What checks values from outside: the class `Schema`, and each function that is told how to do it, by a
 * function and what is `expected`, and returns no schema.
 *
 * @param {readonly ts.SourceFile[]} sources
 * @returns {string[]}
 */
export function validationsOf(sources) {
  return sources
    .flatMap(({ statements }) => [...statements])
    .filter((statement) =>
      ts.isFunctionDeclaration(statement)
        ? statement.parameters.some(({ name }) => name.getText() === 'expected') &&
          statement.parameters.some(({ type }) => type && ts.isFunctionTypeNode(type)) &&
          statement.type?.getText().startsWith('Schema<') !== true
        : ts.isClassDeclaration(statement) && statement.name?.text === 'Schema',
    )
    .map((statement) => /** @type {ts.DeclarationStatement} */ (statement).name?.getText() ?? '')
}

/**
 * The interfaces that have a property of this name.
 *
 * @param {readonly ts.SourceFile[]} sources
 * @param {string} property
 * @returns {string[]}
 */
export function interfacesWith(sources, property) {
  return sources.flatMap(({ statements }) =>
    statements
      .filter(ts.isInterfaceDeclaration)
      .filter(({ members }) => members.some(({ name }) => name?.getText() === property))
      .map(({ name }) => name.text),
  )
}
