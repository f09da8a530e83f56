import { declareOptions, having, importOptional, monotonicNow } from '@tsrun/core'
import { isOperationKind, type Span } from '@tsrun/distributed/record'
import { partOfKind } from './trace/division.ts'

/**
 * The subset of the `Tracer` of `@opentelemetry/api` that is used, so that the types of this package do
 * not depend on it.
 */
export interface OpenTelemetryTracer {
  startSpan(
    name: string,
    options?: {
      readonly startTime?: number
      readonly attributes?: Record<string, string | number>
    },
    context?: unknown,
  ): { end(endTime?: number): void }
}

/** Options of `exportSpans`. */
export interface ExportOptions {
  /** Receives the spans; default: the tracer of the global provider for `@tsrun/observe`. */
  readonly tracer?: OpenTelemetryTracer
}

const readOptions = declareOptions({
  tracer: having<OpenTelemetryTracer>(['startSpan'], 'a tracer of @opentelemetry/api').optional(),
})

/**
 * Exports recorded spans to OpenTelemetry with their wall-clock times. A span is named after its part of
 * a step, such as `forward`, or else after its kind. A span of the main thread becomes a child of the
 * span that encloses it. An operation becomes a child of the step that it began in. Other spans become
 * children of the active span, if any. Attributes are `tsrun.kind`, `tsrun.rank` and the facts of the
 * span, such as `tsrun.microbatch`. Names of facts in milliseconds end with `_ms`.
 *
 * @param spans - spans of this host, recorded after the last adjustment of its clock
 * @returns the number of spans
 * @throws ERR_TSR_PACKAGE_MISSING without the package `@opentelemetry/api`
 *
 * @example await exportSpans(recorder.spans(), { tracer: trace.getTracer('training') })
 */
export async function exportSpans(
  spans: readonly Span[],
  options: ExportOptions = {},
): Promise<number> {
  const api = await importOptional(
    'Exporting spans',
    '@opentelemetry/api',
    () => import('@opentelemetry/api'),
  )
  const tracer: OpenTelemetryTracer =
    readOptions(options).tracer ?? api.trace.getTracer('@tsrun/observe')
  const active = api.context.active()
  const epoch = Date.now() - monotonicNow()
  const open = ({ kind, rank, start, end, name, ...facts }: Span, parent: unknown): unknown => {
    const attributes: Record<string, string | number> = { 'tsrun.kind': kind, 'tsrun.rank': rank }
    if (name !== undefined) attributes['tsrun.name'] = name
    for (const [fact, value] of Object.entries(facts)) {
      if (value !== undefined) attributes[`tsrun.${attributeNames.get(fact) ?? fact}`] = value
    }
    const made = tracer.startSpan(
      partOfKind[kind] ?? kind,
      { startTime: epoch + start, attributes },
      parent,
    )
    made.end(epoch + end)
    return api.trace.setSpan(parent as typeof active, made as never)
  }
  for (const rank of new Set(spans.map((span) => span.rank))) {
    // Enclosing spans come before the spans inside them.
    const own = spans
      .filter((span) => span.rank === rank)
      .sort((a, b) => a.start - b.start || b.end - a.end)
    /** Open spans that may enclose the next one, outermost first, and the contexts of their children. */
    let around: { readonly span: Span; readonly context: unknown }[] = []
    for (const span of own) {
      around = around.filter((outer) => outer.span.end > span.start)
      const isOperation = isOperationKind(span.kind)
      const parent = isOperation
        ? around.find((outer) => outer.span.kind === 'step')
        : around.findLast((outer) => outer.span.end >= span.end)
      const context = open(span, parent?.context ?? active)
      if (!isOperation) around.push({ span, context })
    }
  }
  return spans.length
}

const attributeNames = new Map([
  ['waited', 'waited_ms'],
  ['noticed', 'noticed_ms'],
  ['cpu', 'cpu_ms'],
])
