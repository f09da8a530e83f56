/**
 * What the page shows beside collectives.
 *
 * @param {string} _folder - for what is compiled
 * @returns {Promise<{ title: string, text: string }[]>}
 */
export async function sections(_folder) {
  return []
}
