/** Declares the entry `msgpackr/pack`, because the declarations in the package do not resolve. */
declare module 'msgpackr/pack' {
  export { addExtension, Packr } from 'msgpackr'
}
