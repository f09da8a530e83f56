export {
  AF_INET6,
  decodeSocketAddress,
  encodeSocketAddress,
} from '../../packages/native/src/socket-address.ts'
