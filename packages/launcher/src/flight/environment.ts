import { join, resolve } from 'node:path'

/** Where the ranks of one life write their flight records; undefined: nowhere. */
export function flightDirectory(
  logs: string | undefined,
  env: NodeJS.ProcessEnv,
): string | undefined {
  const given = env['TSRUN_FLIGHT_DIR']
  if (given !== undefined && given !== '') return resolve(given)
  return logs === undefined ? undefined : resolve(join(logs, 'flight'))
}

/** The variables with which ranks know. */
export function diagnosisEnvironment(records: string | undefined): Record<string, string> {
  return records === undefined ? {} : { TSRUN_FLIGHT_DIR: records }
}
