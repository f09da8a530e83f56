export * from './copy.as'
export * from './float32.as'
export * from './float64.as'
export * from './int32.as'
