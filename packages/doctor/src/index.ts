export { command as doctor } from './commands/doctor.ts'
export { command as env } from './commands/env.ts'
export { command as setup } from './commands/setup.ts'
