// Reads a Dockerfile and a .dockerignore as `docker build` does, for what checks or takes their steps.

/**
 * @typedef {object} Instruction
 * @property {string} name - for example COPY
 * @property {string} text - what follows the name, in one line, with the values of the arguments
 */

/**
 * @typedef {object} Stage
 * @property {string} name
 * @property {string} base - an image, or the name of an earlier stage
 * @property {Instruction[]} instructions - after FROM
 */

/**
 * The stages of a Dockerfile. Continued lines are joined.
 *
 * @param {string} text
 * @returns {Stage[]}
 */
export function stagesOf(text) {
  /** @type {Record<string, string>} */
  const images = {}
  /** @type {Stage[]} */
  const stages = []
  for (const { name, text: given } of instructionsOf(text)) {
    const stage = stages.at(-1)
    if (name === 'FROM') {
      const [base, , alias = String(stages.length)] = given.split(/\s+/)
      stages.push({ name: alias, base: substitute(base, images), instructions: [] })
    } else if (stage === undefined) {
      Object.assign(images, argumentOf(given))
    } else {
      stage.instructions.push({ name, text: given })
    }
  }
  return stages
}

/**
 * The stages that the stage `target` needs, in the order of the file, with itself at the end.
 *
 * @param {readonly Stage[]} stages
 * @param {string | undefined} target - default: the last stage
 */
export function neededFor(stages, target = stages.at(-1)?.name) {
  const stage = stages.find(({ name }) => name === target)
  if (stage === undefined) throw new Error(`the Dockerfile has no stage ${target}`)
  /** @type {Set<Stage>} */
  const needed = new Set()
  /** @param {Stage} one */
  const add = (one) => {
    if (needed.has(one)) return
    needed.add(one)
    const sources = one.instructions.flatMap(({ name, text }) => {
      return name === 'COPY' ? (copyOf(text).from ?? []) : []
    })
    for (const name of [one.base, ...sources]) {
      const other = stages.find((each) => each.name === name)
      if (other !== undefined) add(other)
    }
  }
  add(stage)
  return stages.filter((each) => needed.has(each))
}

/**
 * The parts of a COPY.
 *
 * @param {string} text
 * @returns {{ from: string | undefined, sources: string[], target: string }}
 */
export function copyOf(text) {
  const words = text.split(/\s+/)
  const from = words[0]?.startsWith('--from=') ? words.shift()?.slice('--from='.length) : undefined
  const target = words.pop() ?? ''
  return { from, sources: words, target }
}

/**
 * The name and value of an ARG or an ENV, or of the pairs of a LABEL.
 *
 * @param {string} text
 * @returns {Record<string, string>}
 */
export function argumentOf(text) {
  const pairs = text.matchAll(/([\w.]+)(?:=("[^"]*"|\S*))?/g)
  return Object.fromEntries(
    Array.from(pairs, ([, name, value = '']) => [name, value.replaceAll(/^"|"$/g, '')]),
  )
}

/**
 * @param {string} text
 * @param {Readonly<Record<string, string | undefined>>} values
 */
export function substitute(text, values) {
  return text.replaceAll(/\$\{?(\w+)\}?/g, (_, name) => values[name] ?? '')
}

/**
 * Whether a .dockerignore leaves a path out. As Docker does, the last pattern counts that matches the path
 * or a folder above it.
 *
 * @param {string} text - the .dockerignore
 * @returns {(path: string) => boolean} of a path from the root of the context, with slashes
 */
export function ignoring(text) {
  const rules = linesOf(text).map((line) => {
    const isException = line.startsWith('!')
    return { isException, pattern: toPattern(line.slice(isException ? 1 : 0)) }
  })
  return (path) => {
    const parts = path.split('/')
    const paths = parts.map((_, index) => parts.slice(0, index + 1).join('/'))
    const last = rules.findLast(({ pattern }) => paths.some((each) => pattern.test(each)))
    return last !== undefined && !last.isException
  }
}

/** @param {string} glob */
function toPattern(glob) {
  const source = glob.replace(/^\//, '').replaceAll(/\*\*\/|\*\*|\*|\?|[^*?]+/g, (part) => {
    if (part === '**/') return '(?:.*/)?'
    if (part === '**') return '.*'
    if (part === '*') return '[^/]*'
    if (part === '?') return '[^/]'
    return part.replaceAll(/[.+^${}()|[\]\\]/g, '\\$&')
  })
  return new RegExp(`^${source}$`)
}

/** @param {string} text */
function instructionsOf(text) {
  return linesOf(text.replaceAll(/\\\n\s*/g, '')).map((line) => {
    const [, name = '', rest = ''] = /^(\w+)\s+(.*)$/.exec(line) ?? []
    return { name, text: rest }
  })
}

/**
 * The lines that are neither empty nor comments.
 *
 * @param {string} text
 */
function linesOf(text) {
  return text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
}
