import { defaultGroup } from './functions.ts'
import type { ProcessGroup } from './process-group.ts'

/* Calls on the default group. `ProcessGroup` documents them. */

function on<Name extends keyof ProcessGroup & string>(
  name: Name,
  operation: string = name,
): ProcessGroup[Name] {
  const call = (...args: unknown[]): unknown => {
    const group: object = defaultGroup(operation)
    return (group as Readonly<Record<string, (...args: unknown[]) => unknown>>)[name]!(...args)
  }
  return call as ProcessGroup[Name]
}

/** Like `on`, but the call rejects instead of throwing if there is no default group. */
function asyncOn<Name extends keyof ProcessGroup & string>(
  name: Name,
  operation?: string,
): ProcessGroup[Name] {
  const call = on(name, operation) as (...args: unknown[]) => unknown
  return (async (...args: unknown[]) => await call(...args)) as ProcessGroup[Name]
}

export const alloc: ProcessGroup['alloc'] = on('alloc')
export const allocUnsafe: ProcessGroup['allocUnsafe'] = on('allocUnsafe')
export const send: ProcessGroup['send'] = on('send')
export const sendSync: ProcessGroup['sendSync'] = on('sendSync')
export const recv: ProcessGroup['recv'] = on('recv')
export const recvSync: ProcessGroup['recvSync'] = on('recvSync')
export const isend: ProcessGroup['isend'] = on('isend')
export const irecv: ProcessGroup['irecv'] = on('irecv')
export const batchIsendIrecv: ProcessGroup['batchIsendIrecv'] = on('batchIsendIrecv')
export const batchIsendIrecvSync: ProcessGroup['batchIsendIrecvSync'] = on('batchIsendIrecvSync')
export const sendInit: ProcessGroup['sendInit'] = on('sendInit')
export const recvInit: ProcessGroup['recvInit'] = on('recvInit')
export const broadcastInit: ProcessGroup['broadcastInit'] = on('broadcastInit')
export const allReduceInit: ProcessGroup['allReduceInit'] = on('allReduceInit')
export const reduceScatterInit: ProcessGroup['reduceScatterInit'] = on('reduceScatterInit')
export const allGatherInit: ProcessGroup['allGatherInit'] = on('allGatherInit')
export const barrierInit: ProcessGroup['barrierInit'] = on('barrierInit')
export const broadcast: ProcessGroup['broadcast'] = on('broadcast')
export const broadcastSync: ProcessGroup['broadcastSync'] = on('broadcastSync')
export const reduce: ProcessGroup['reduce'] = on('reduce')
export const reduceSync: ProcessGroup['reduceSync'] = on('reduceSync')
export const allReduce: ProcessGroup['allReduce'] = on('allReduce')
export const allReduceSync: ProcessGroup['allReduceSync'] = on('allReduceSync')
export const allReduceCoalesced: ProcessGroup['allReduceCoalesced'] = on('allReduceCoalesced')
export const allReduceCoalescedSync: ProcessGroup['allReduceCoalescedSync'] =
  on('allReduceCoalescedSync')
export const reduceScatter: ProcessGroup['reduceScatter'] = on('reduceScatter')
export const reduceScatterSync: ProcessGroup['reduceScatterSync'] = on('reduceScatterSync')
export const allGather: ProcessGroup['allGather'] = on('allGather')
export const allGatherSync: ProcessGroup['allGatherSync'] = on('allGatherSync')
export const allGatherV: ProcessGroup['allGatherV'] = on('allGatherV')
export const allGatherVSync: ProcessGroup['allGatherVSync'] = on('allGatherVSync')
export const gather: ProcessGroup['gather'] = on('gather')
export const gatherSync: ProcessGroup['gatherSync'] = on('gatherSync')
export const scatter: ProcessGroup['scatter'] = on('scatter')
export const scatterSync: ProcessGroup['scatterSync'] = on('scatterSync')
export const allToAll: ProcessGroup['allToAll'] = on('allToAll')
export const allToAllSync: ProcessGroup['allToAllSync'] = on('allToAllSync')
export const allToAllV: ProcessGroup['allToAllV'] = on('allToAllV')
export const allToAllVSync: ProcessGroup['allToAllVSync'] = on('allToAllVSync')
export const barrier: ProcessGroup['barrier'] = on('barrier')
export const barrierSync: ProcessGroup['barrierSync'] = on('barrierSync')
export const monitoredBarrier: ProcessGroup['monitoredBarrier'] = on('monitoredBarrier')
export const monitoredBarrierSync: ProcessGroup['monitoredBarrierSync'] = on('monitoredBarrierSync')
export const sendObject: ProcessGroup['sendObject'] = on('sendObject')
export const sendObjectSync: ProcessGroup['sendObjectSync'] = on('sendObjectSync')
export const recvObject: ProcessGroup['recvObject'] = on('recvObject')
export const recvObjectSync: ProcessGroup['recvObjectSync'] = on('recvObjectSync')
export const broadcastObject: ProcessGroup['broadcastObject'] = on('broadcastObject')
export const broadcastObjectSync: ProcessGroup['broadcastObjectSync'] = on('broadcastObjectSync')
export const allGatherObject: ProcessGroup['allGatherObject'] = on('allGatherObject')
export const allGatherObjectSync: ProcessGroup['allGatherObjectSync'] = on('allGatherObjectSync')
export const gatherObject: ProcessGroup['gatherObject'] = on('gatherObject')
export const gatherObjectSync: ProcessGroup['gatherObjectSync'] = on('gatherObjectSync')
export const scatterObject: ProcessGroup['scatterObject'] = on('scatterObject')
export const scatterObjectSync: ProcessGroup['scatterObjectSync'] = on('scatterObjectSync')
export const newGroup: ProcessGroup['newGroup'] = asyncOn('newGroup')
export const shrink: ProcessGroup['shrink'] = asyncOn('shrink')
export const reconfigure: ProcessGroup['reconfigure'] = asyncOn('reconfigure')
export const splitGroup: ProcessGroup['split'] = asyncOn('split', 'splitGroup')
