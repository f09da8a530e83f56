import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { context, trace, type HrTime } from '@opentelemetry/api'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base'
import { monotonicNow } from '@tsrun/core'
import { exportSpans } from '@tsrun/observe'
import { SpanRecorder } from '@tsrun/distributed/record'

const exporter = new InMemorySpanExporter()
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
const tracer = provider.getTracer('test')
afterEach(() => {
  exporter.reset()
})

function milliseconds([seconds, nanoseconds]: HrTime): number {
  return seconds * 1000 + nanoseconds / 1e6
}

/** The names of a span and of what it is in, from the inside outwards. */
function pathOf(span: ReadableSpan, all: readonly ReadableSpan[]): string[] {
  const parent = all.find((one) => one.spanContext().spanId === span.parentSpanContext?.spanId)
  return parent === undefined ? [span.name] : [span.name, ...pathOf(parent, all)]
}

it('OpenTelemetry spans have the times, durations and attributes of the recorded spans', async () => {
  const recorder = new SpanRecorder({ rank: 3 })
  const start = monotonicNow()
  const before = Date.now()
  recorder.record('F', start, start + 12.345678, { stage: 1, microbatch: 0, bytes: 64 })
  recorder.record('send', start + 1, start + 2, { name: 'x', peer: 0, tag: 5, waited: 0.25 })
  recorder.record('recv', start + 3, start + 4)
  expect(await exportSpans(recorder.spans(), { tracer })).toBe(3)
  const [forward, send, receive] = exporter.getFinishedSpans()
  expect(forward).toMatchObject({
    ...{ name: 'forward' },
    attributes: {
      ...{ 'tsrun.kind': 'F', 'tsrun.rank': 3, 'tsrun.stage': 1, 'tsrun.microbatch': 0 },
      'tsrun.bytes': 64,
    },
  })
  expect(Math.abs(milliseconds(forward!.startTime) - before)).toBeLessThan(100)
  expect(milliseconds(forward!.duration)).toBeCloseTo(12.345678, 2)
  expect(milliseconds(send!.startTime) - milliseconds(forward!.startTime)).toBeCloseTo(1, 2)
  expect(send).toMatchObject({
    ...{ name: 'send' },
    attributes: {
      ...{ 'tsrun.name': 'x', 'tsrun.peer': 0, 'tsrun.tag': 5, 'tsrun.waited_ms': 0.25 },
      ...{ 'tsrun.kind': 'send', 'tsrun.rank': 3 },
    },
  })
  expect(receive).toMatchObject({ name: 'recv' })
})

it('OpenTelemetry spans are nested, and operations are children of their step', async () => {
  const recorder = new SpanRecorder({ rank: 0 })
  const at = monotonicNow()
  // In the order in which they end, as ranks record them.
  recorder.record('pack', at + 12, at + 13)
  recorder.record('B', at + 10, at + 20)
  recorder.record('collective', at + 12.5, at + 45, { name: 'bucket 0' })
  recorder.record('wait', at + 20, at + 30)
  recorder.record('step', at, at + 40, { step: 1 })
  recorder.record('step', at + 40, at + 80, { step: 2 })
  recorder.record('F', at + 41, at + 50)
  recorder.record('gc', at + 49, at + 51)
  const other = new SpanRecorder({ rank: 1 })
  other.record('F', at + 2, at + 3)
  await exportSpans([...recorder.spans(), ...other.spans()], { tracer })
  const all = exporter.getFinishedSpans()
  expect(all.map((span) => pathOf(span, all).join(' < '))).toEqual([
    'step',
    'backward < step',
    'pack < backward < step',
    'collective < step',
    'wait < step',
    'step',
    'forward < step',
    'gc < step',
    'forward',
  ])
  // Everything in a trace has its id; the two steps and the other rank are traces of their own.
  expect(new Set(all.map((span) => span.spanContext().traceId)).size).toBe(3)
})

it('OpenTelemetry spans are children of the active span, and use the global tracer by default', async () => {
  const outer = tracer.startSpan('job')
  const active = trace.setSpan(context.active(), outer)
  const manager = {
    active: () => active,
    with: <T>(_: unknown, run: () => T): T => run(),
    bind: <T>(_: unknown, target: T): T => target,
    enable: () => manager,
    disable: () => manager,
  }
  context.setGlobalContextManager(manager as never)
  trace.setGlobalTracerProvider(provider)
  try {
    await exportSpans([{ rank: 0, kind: 'F', start: 0, end: 1 }])
  } finally {
    trace.disable()
    context.disable()
  }
  const [span] = exporter.getFinishedSpans()
  expect(span!.parentSpanContext?.spanId).toBe(outer.spanContext().spanId)
  expect(span!.instrumentationScope.name).toBe('@tsrun/observe')
})

it('refuses a value that is not a tracer', async () => {
  const wrong = { tracer: {} as typeof tracer }
  await expect(exportSpans([], wrong)).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
})

describe('the package', () => {
  const dist = fileURLToPath(new URL('../../packages/observe/dist/', import.meta.url))

  it('has types that do not need OpenTelemetry', () => {
    const types = readdirSync(dist, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.d.ts'))
      .map((file) => readFileSync(`${dist}${file}`, 'utf8'))
    expect(types.length).toBeGreaterThan(5)
    const imports = types.filter((text) => /(from|import\() ?['"]@opentelemetry/.test(text))
    expect(imports).toEqual([])
  })

  it('says what to install if OpenTelemetry is missing', () => {
    const hooks = `export async function resolve(name, context, next) {
      if (!name.startsWith('@opentelemetry/')) return await next(name, context)
      throw Object.assign(new Error('missing'), { code: 'ERR_MODULE_NOT_FOUND' })
    }`
    const program = `import { register } from 'node:module'
      register('data:text/javascript,' + encodeURIComponent(${JSON.stringify(hooks)}))
      const { exportSpans } = await import('file://${dist}index.js')
      await exportSpans([]).catch(({ code, message }) => console.log(code, message))`
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      encoding: 'utf8',
    })
    expect(stderr).toBe('')
    expect(stdout).toMatch(/^ERR_TSR_PACKAGE_MISSING .*`npm install @opentelemetry\/api`/)
  })
})
