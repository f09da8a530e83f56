export * from './product.as'
export * from './rows.as'
export * from './updates.as'
export * from './windows.as'
