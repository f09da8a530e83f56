declare module '*/.dependency-cruiser.mjs' {
  export const packages: Record<string, string[]>
  const configuration: { forbidden: { name: string; comment: string }[] }
  export default configuration
}
