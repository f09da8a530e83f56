import { fileURLToPath } from 'node:url'
import ts from 'typescript'

const entry = fileURLToPath(new URL('../../packages/distributed/dist/index.d.ts', import.meta.url))
const script = entry.replace('index.d.ts', 'script-of-a-user.ts')

const source = `
import { allReduceSync, broadcastObject, type ProcessGroup } from './index.js'
declare const group: ProcessGroup
const buffer = new Float32Array(1)
group.allReduce(buffer)
group.allReduceSync(buffer)
group.recvObjectSync(0)
group.recvObject('any')
group.scatterObjectSync([{ a: 1 }], 0)
group.irecv(buffer, 0)
allReduceSync(buffer)
broadcastObject({ a: 1 }, 0)
`

const service = ts.createLanguageService({
  getScriptFileNames: () => [script],
  getScriptVersion: () => '1',
  getScriptSnapshot: (path) => {
    const text = path === script ? source : ts.sys.readFile(path)
    return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text)
  },
  getCurrentDirectory: () => fileURLToPath(new URL('../..', import.meta.url)),
  getCompilationSettings: () => ({
    target: ts.ScriptTarget.ES2023,
    module: ts.ModuleKind.NodeNext,
    noEmit: true,
    strict: true,
    skipLibCheck: true,
  }),
  getDefaultLibFileName: (options) => ts.getDefaultLibFilePath(options),
  fileExists: (path) => path === script || ts.sys.fileExists(path),
  readFile: (path) => ts.sys.readFile(path),
  directoryExists: (path) => ts.sys.directoryExists(path),
})

/** What an editor shows at the last word of `call`. */
function hover(call: string): string {
  const at = source.indexOf(`${call}(`) + call.length - 1
  const info = service.getQuickInfoAtPosition(script, at)
  const parts = [info?.displayParts, info?.documentation].map(ts.displayPartsToString)
  return parts.join(' | ').replace(/\s+/g, ' ')
}

afterAll(() => {
  service.dispose()
})

it.each([
  [
    'group.allReduce',
    'allReduce(buffer: AnyTypedArray, options?: ReduceOptions): Work<void> | Reduces `buffer` over',
  ],
  [
    'group.allReduceSync',
    'allReduceSync(buffer: AnyTypedArray, options?: ReduceOptions): void | Reduces `buffer` over',
  ],
  [
    'group.recvObjectSync',
    '(from: 0, options?: MessageOptions): unknown | The result is the value',
  ],
  [
    'group.recvObject',
    '(from: "any", options?: MessageOptions): Work<ReceivedObject> | The result',
  ],
  [
    'group.scatterObjectSync',
    '(values: readonly { a: number; }[] | null, root: number, options?: CallOptions): { a: number; } | The result is',
  ],
  [
    'group.irecv',
    '(buffer: AnyTypedArray, from: Source, options?: MessageOptions) => Work<number>',
  ],
  [
    '\nallReduceSync',
    'allReduceSync(buffer: AnyTypedArray, options?: ReduceOptions): void import allReduceSync | Reduces',
  ],
  [
    '\nbroadcastObject',
    'broadcastObject<{ a: number; }>(value: { a: number; }, root: number, options?: CallOptions): Work<{ a: number; }>',
  ],
])('an editor shows the signature and the comment of %j', (call, shown) => {
  expect(hover(call)).toContain(shown)
})

it('a script that uses all forms of the calls has no type errors', () => {
  const messages = service
    .getSemanticDiagnostics(script)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'))
  expect(messages).toEqual([])
})
