/** Describes a valid token, for messages. */
export const TOKEN_EXPECTED =
  'a hexadecimal secret of at least 32 digits, as openssl rand -hex 32 makes it'

/** Whether a token has at least 128 bits and is not an all-zero placeholder. */
export function isStrongToken(token: string): boolean {
  return /^([0-9a-f]{2}){16,}$/i.test(token) && !/^0+$/.test(token)
}
