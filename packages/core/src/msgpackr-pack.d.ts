/** The package's declarations of this entry do not resolve. */
declare module 'msgpackr/pack' {
  export { addExtension, Packr } from 'msgpackr'
}
