import type { SpanRecorder } from '@tsrun/telemetry'
import { dtypes } from '../dtype.ts'
import { isCollective, type Operation } from '../operation.ts'
import type { Ticket } from '../ticket.ts'

/** Records an operation that has ended: until the first message moved it waited. */
export function recordSpan(
  recorder: SpanRecorder | undefined,
  operation: Operation,
  group: { readonly ranks: readonly number[] },
  { timing }: Ticket,
): void {
  if (recorder === undefined || timing === undefined) return
  const { name, count, dtype, peer } = operation
  const kind = name === 'send' || name === 'recv' ? name : 'collective'
  const { posted, started, completed } = timing
  recorder.record(kind, posted, completed, {
    bytes: Math.max(0, count) * dtypes[dtype].bytes,
    peer: isCollective(operation) ? undefined : group.ranks[peer],
    waited: started - posted,
  })
}
