/**
 * An ESLint rule: refuses phrases in comments, test titles and messages that readers have had to read
 * twice, and names the words to use.
 */

/** @type {readonly (readonly [RegExp, string])[]} */
const phrases = [
  [/\b(who(m|so)?ever|somebody|anybody)\b/i, 'name the subject: a peer, a user, another process'],
  [/\b(go|goes|going|went) on\b/i, 'continue, resume, keep, or in progress'],
  [/\banew\b/i, 'again, from the start, rebuild'],
  [/\b(hears?|heard|called up)\b/i, 'accept, receive, learn'],
  [/\bstrangers?\b/i, 'unauthenticated peer'],
  [/\b(goodbye|farewell|lifeline)\b/i, 'close, pipe to the parent'],
  [/\b(gives?|gave|makes?|made) way\b/i, 'is dropped'],
  [/\bturn(s|ed)? away\b/i, 'reject'],
  [/\b(between two|a) looks?\b/, 'poll, check'],
  [/, (each |one )?of (which|whom)\b/, 'two sentences, or whose'],
  [/\bnone but\b/i, 'say it positively: only'],
  [/\bbr(ing|ings|ought) (\S+ ){1,3}over\b/i, 'inject'],
  [/\b(suffers?|stricken)\b/i, 'inject a fault'],
]

/**
 * The phrases in a text, with the words to use.
 *
 * @param {string} text
 */
export function phrasesIn(text) {
  return phrases.flatMap(([pattern, advice]) => {
    const found = pattern.exec(text)?.[0]
    return found === undefined ? [] : [{ found, advice }]
  })
}

/** The fewest words of a text that is prose and not a name. */
const WORDS = 4

/** @type {import('eslint').Rule.RuleModule} */
const rule = {
  meta: { type: 'suggestion', schema: [], messages: { phrase: '"{{found}}": {{advice}}.' } },
  create(context) {
    /**
     * @param {{ loc?: import('eslint').AST.SourceLocation | null | undefined }} node
     * @param {string} text
     */
    const check = (node, text) => {
      for (const data of phrasesIn(text)) {
        // A comment is a token, which has a location but is no node.
        context.report({ loc: node.loc ?? { line: 1, column: 0 }, messageId: 'phrase', data })
      }
    }
    return {
      Program() {
        for (const comment of context.sourceCode.getAllComments()) check(comment, comment.value)
      },
      Literal(node) {
        if (typeof node.value === 'string' && node.value.split(' ').length >= WORDS)
          check(node, node.value)
      },
      TemplateElement(node) {
        if (node.value.raw.split(' ').length >= WORDS) check(node, node.value.raw)
      },
    }
  },
}

export const prose = { rules: { phrases: rule } }
