export {
  type ByteChannel,
  type Dialer,
  type Endpoint,
  LARGEST_QUEUE,
  type ListenOptions,
} from '../../../packages/distributed/src/transports/dialer.ts'
export {
  createNetwork,
  memoryTransport,
} from '../../../packages/distributed/src/transports/memory-transport.ts'
export {
  connectMesh,
  type MeshEndpoint,
  type MeshOptions,
} from '../../../packages/distributed/src/transports/mesh.ts'
export {
  nodeTransport,
  openNodeDialer,
  type SocketChannel,
  socketChannel,
} from '../../../packages/distributed/src/transports/node-transport.ts'
export {
  nativeCipher,
  nodeCipher,
  OVERHEAD_BYTES,
  type RecordCipher,
  regionOf,
  ALTERED,
  LARGEST_PIECE,
  type ReceiveRaw,
  type SealedStream,
  sealStream,
  type SendRaw,
} from '../../../packages/distributed/src/transports/sealed-stream.ts'
export {
  checkRoom,
  closeSegments,
  copyFrom,
  hostsOf,
  type Neighbour,
  openNeighbour,
  reservedBytes,
  type Sharing,
} from '../../../packages/distributed/src/transports/shared-memory/neighbours.ts'
export {
  createSegment,
  openSegment,
  type Segment,
  type SegmentAddress,
} from '../../../packages/distributed/src/transports/shared-memory/segment.ts'
export {
  MappedSlots,
  SLOTS_BYTES,
} from '../../../packages/distributed/src/transports/shared-memory/slots.ts'
export {
  type DescriptorChannel,
  openTcpDialer,
  tcpTransport,
} from '../../../packages/distributed/src/transports/tcp-transport.ts'
export { CLOSED, type Transport } from '../../../packages/distributed/src/transports/transport.ts'
