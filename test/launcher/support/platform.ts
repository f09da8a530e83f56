/** Runs `run` as if this process were on another platform. */
export async function onPlatform<T>(
  platform: NodeJS.Platform,
  run: () => T | Promise<T>,
): Promise<T> {
  const own = Object.getOwnPropertyDescriptor(process, 'platform')!
  Object.defineProperty(process, 'platform', { ...own, value: platform })
  try {
    return await run()
  } finally {
    Object.defineProperty(process, 'platform', own)
  }
}
