import { defaultGroup } from './functions.ts'
import type { ProcessGroup } from './process-group.ts'

/*
 * The calls of `ProcessGroup` on the default group, in both forms. Their signatures, and what they
 * do, are in `GroupCalls`.
 */

export const send: ProcessGroup['send'] = (...call) => defaultGroup('send').send(...call)
export const sendSync: ProcessGroup['sendSync'] = (...call) => {
  defaultGroup('sendSync').sendSync(...call)
}

export const recv: ProcessGroup['recv'] = (...call) => defaultGroup('recv').recv(...call)
export const recvSync: ProcessGroup['recvSync'] = (...call) =>
  defaultGroup('recvSync').recvSync(...call)

export const isend: ProcessGroup['isend'] = (...call) => defaultGroup('isend').isend(...call)

export const irecv: ProcessGroup['irecv'] = (...call) => defaultGroup('irecv').irecv(...call)

export const batchIsendIrecv: ProcessGroup['batchIsendIrecv'] = (...call) =>
  defaultGroup('batchIsendIrecv').batchIsendIrecv(...call)
export const batchIsendIrecvSync: ProcessGroup['batchIsendIrecvSync'] = (...call) =>
  defaultGroup('batchIsendIrecvSync').batchIsendIrecvSync(...call)

export const sendInit: ProcessGroup['sendInit'] = (...call) =>
  defaultGroup('sendInit').sendInit(...call)
export const recvInit: ProcessGroup['recvInit'] = (...call) =>
  defaultGroup('recvInit').recvInit(...call)
export const broadcastInit: ProcessGroup['broadcastInit'] = (...call) =>
  defaultGroup('broadcastInit').broadcastInit(...call)
export const allReduceInit: ProcessGroup['allReduceInit'] = (...call) =>
  defaultGroup('allReduceInit').allReduceInit(...call)
export const reduceScatterInit: ProcessGroup['reduceScatterInit'] = (...call) =>
  defaultGroup('reduceScatterInit').reduceScatterInit(...call)
export const allGatherInit: ProcessGroup['allGatherInit'] = (...call) =>
  defaultGroup('allGatherInit').allGatherInit(...call)
export const barrierInit: ProcessGroup['barrierInit'] = (...call) =>
  defaultGroup('barrierInit').barrierInit(...call)

export const broadcast: ProcessGroup['broadcast'] = (...call) =>
  defaultGroup('broadcast').broadcast(...call)
export const broadcastSync: ProcessGroup['broadcastSync'] = (...call) => {
  defaultGroup('broadcastSync').broadcastSync(...call)
}

export const reduce: ProcessGroup['reduce'] = (...call) => defaultGroup('reduce').reduce(...call)
export const reduceSync: ProcessGroup['reduceSync'] = (...call) => {
  defaultGroup('reduceSync').reduceSync(...call)
}

export const allReduce: ProcessGroup['allReduce'] = (...call) =>
  defaultGroup('allReduce').allReduce(...call)
export const allReduceSync: ProcessGroup['allReduceSync'] = (...call) => {
  defaultGroup('allReduceSync').allReduceSync(...call)
}

export const allReduceCoalesced: ProcessGroup['allReduceCoalesced'] = (...call) =>
  defaultGroup('allReduceCoalesced').allReduceCoalesced(...call)
export const allReduceCoalescedSync: ProcessGroup['allReduceCoalescedSync'] = (...call) => {
  defaultGroup('allReduceCoalescedSync').allReduceCoalescedSync(...call)
}

export const reduceScatter: ProcessGroup['reduceScatter'] = (...call) =>
  defaultGroup('reduceScatter').reduceScatter(...call)
export const reduceScatterSync: ProcessGroup['reduceScatterSync'] = (...call) => {
  defaultGroup('reduceScatterSync').reduceScatterSync(...call)
}

export const allGather: ProcessGroup['allGather'] = (...call) =>
  defaultGroup('allGather').allGather(...call)
export const allGatherSync: ProcessGroup['allGatherSync'] = (...call) => {
  defaultGroup('allGatherSync').allGatherSync(...call)
}

export const allGatherV: ProcessGroup['allGatherV'] = (...call) =>
  defaultGroup('allGatherV').allGatherV(...call)
export const allGatherVSync: ProcessGroup['allGatherVSync'] = (...call) => {
  defaultGroup('allGatherVSync').allGatherVSync(...call)
}

export const gather: ProcessGroup['gather'] = (...call) => defaultGroup('gather').gather(...call)
export const gatherSync: ProcessGroup['gatherSync'] = (...call) => {
  defaultGroup('gatherSync').gatherSync(...call)
}

export const gatherV: ProcessGroup['gatherV'] = (...call) =>
  defaultGroup('gatherV').gatherV(...call)
export const gatherVSync: ProcessGroup['gatherVSync'] = (...call) => {
  defaultGroup('gatherVSync').gatherVSync(...call)
}

export const scatter: ProcessGroup['scatter'] = (...call) =>
  defaultGroup('scatter').scatter(...call)
export const scatterSync: ProcessGroup['scatterSync'] = (...call) => {
  defaultGroup('scatterSync').scatterSync(...call)
}

export const scatterV: ProcessGroup['scatterV'] = (...call) =>
  defaultGroup('scatterV').scatterV(...call)
export const scatterVSync: ProcessGroup['scatterVSync'] = (...call) => {
  defaultGroup('scatterVSync').scatterVSync(...call)
}

export const allToAll: ProcessGroup['allToAll'] = (...call) =>
  defaultGroup('allToAll').allToAll(...call)
export const allToAllSync: ProcessGroup['allToAllSync'] = (...call) => {
  defaultGroup('allToAllSync').allToAllSync(...call)
}

export const allToAllV: ProcessGroup['allToAllV'] = (...call) =>
  defaultGroup('allToAllV').allToAllV(...call)
export const allToAllVSync: ProcessGroup['allToAllVSync'] = (...call) => {
  defaultGroup('allToAllVSync').allToAllVSync(...call)
}

export const barrier: ProcessGroup['barrier'] = (...call) =>
  defaultGroup('barrier').barrier(...call)
export const barrierSync: ProcessGroup['barrierSync'] = (...call) => {
  defaultGroup('barrierSync').barrierSync(...call)
}

export const monitoredBarrier: ProcessGroup['monitoredBarrier'] = (...call) =>
  defaultGroup('monitoredBarrier').monitoredBarrier(...call)
export const monitoredBarrierSync: ProcessGroup['monitoredBarrierSync'] = (...call) => {
  defaultGroup('monitoredBarrierSync').monitoredBarrierSync(...call)
}

export const sendObject: ProcessGroup['sendObject'] = (...call) =>
  defaultGroup('sendObject').sendObject(...call)
export const sendObjectSync: ProcessGroup['sendObjectSync'] = (...call) => {
  defaultGroup('sendObjectSync').sendObjectSync(...call)
}

export const recvObject: ProcessGroup['recvObject'] = (...call) =>
  defaultGroup('recvObject').recvObject(...call)
export const recvObjectSync: ProcessGroup['recvObjectSync'] = (...call) =>
  defaultGroup('recvObjectSync').recvObjectSync(...call)

export const broadcastObject: ProcessGroup['broadcastObject'] = (...call) =>
  defaultGroup('broadcastObject').broadcastObject(...call)
export const broadcastObjectSync: ProcessGroup['broadcastObjectSync'] = (...call) =>
  defaultGroup('broadcastObjectSync').broadcastObjectSync(...call)

export const allGatherObject: ProcessGroup['allGatherObject'] = (...call) =>
  defaultGroup('allGatherObject').allGatherObject(...call)
export const allGatherObjectSync: ProcessGroup['allGatherObjectSync'] = (...call) =>
  defaultGroup('allGatherObjectSync').allGatherObjectSync(...call)

export const gatherObject: ProcessGroup['gatherObject'] = (...call) =>
  defaultGroup('gatherObject').gatherObject(...call)
export const gatherObjectSync: ProcessGroup['gatherObjectSync'] = (...call) =>
  defaultGroup('gatherObjectSync').gatherObjectSync(...call)

export const scatterObject: ProcessGroup['scatterObject'] = (...call) =>
  defaultGroup('scatterObject').scatterObject(...call)
export const scatterObjectSync: ProcessGroup['scatterObjectSync'] = (...call) =>
  defaultGroup('scatterObjectSync').scatterObjectSync(...call)

export const allToAllObject: ProcessGroup['allToAllObject'] = (...call) =>
  defaultGroup('allToAllObject').allToAllObject(...call)
export const allToAllObjectSync: ProcessGroup['allToAllObjectSync'] = (...call) =>
  defaultGroup('allToAllObjectSync').allToAllObjectSync(...call)
