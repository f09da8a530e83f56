// The health check of the images: the launcher answers at the address of TSRUN_METRICS. Without that
// variable there is nothing to ask, and the container lives as long as its command.
const given = process.env['TSRUN_METRICS'] ?? ''
if (given !== '') {
  const { ok } = await fetch(`http://${given.includes(':') ? given : `127.0.0.1:${given}`}/metrics`)
  process.exitCode = ok ? 0 : 1
}
