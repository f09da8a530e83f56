// The script of the schedule explorer, for a browser.
import {
  drawSvg,
  explainSimulation,
  formatActions,
  parseSchedule,
  planLayouts,
  planTable,
  schedule,
  scheduleNames,
} from '@tsrun/training/planning'

const at = (id) => document.getElementById(id)
const controls = at('controls')
const drawing = at('drawing')
/** Lists of the user's own, in place of a named schedule. */
let own
/** What arrow keys move through: bars and gaps, by rank. */
let cells = []
let chosen

const chunked = ['interleaved', 'looped', 'interleaved-zb']
const inV = ['zb-v', 'dualpipe-v']

controls.elements.schedule.append(...scheduleNames.map((name) => new Option(name)))
controls.elements.schedule.value = '1f1b'
readHash()
controls.addEventListener('input', (event) => {
  if (['schedule', 'ranks', 'chunks', 'microbatches'].includes(event.target.name)) own = undefined
  show()
})
at('plan').addEventListener('input', plan)
for (const form of [controls, at('plan')]) {
  form.addEventListener('submit', (event) => event.preventDefault())
}
at('use').addEventListener('click', () => {
  own = at('lists').value
  show()
})
at('fill').addEventListener('click', () => {
  at('lists').value = formatActions(chosenSchedule().actions)
})
drawing.addEventListener('pointerover', (event) => choose(event.target.closest('rect')))
drawing.addEventListener('keydown', move)
let resizing
let width = innerWidth
addEventListener('resize', () => {
  if (innerWidth === width) return
  width = innerWidth
  cancelAnimationFrame(resizing)
  resizing = requestAnimationFrame(show)
})
show()
plan()

/** Draws the schedule that is chosen. */
function show() {
  const name = controls.elements.schedule.value
  controls.elements.chunks.disabled = !chunked.includes(name)
  attempt(at('problem'), () => {
    const made = chosenSchedule()
    const durations = durationsOf()
    const simulation = made.simulate(durations)
    const explanation = explainSimulation(simulation)
    drawing.innerHTML = drawSvg(made.actions, { ...durations, width: widthOf(simulation) })
    for (const title of drawing.querySelectorAll('title')) {
      title.parentNode.dataset.text = title.textContent
      title.remove()
    }
    cells = cellsByRank()
    chosen = undefined
    at('why').textContent = ''
    showFigures(made, simulation, explanation)
    showRanks(simulation, explanation)
    writeHash()
  })
}

function chosenSchedule() {
  if (own !== undefined) return parseSchedule(own)
  const { schedule: name, ranks, chunks, microbatches } = controls.elements
  const each = inV.includes(name.value) ? 2 : chunked.includes(name.value) ? numberOf(chunks) : 1
  return schedule(name.value, {
    stages: numberOf(ranks) * each,
    ranks: numberOf(ranks),
    microbatches: numberOf(microbatches),
  })
}

function numberOf(input) {
  const { max, value } = input
  return max === '' ? Number(value) : Math.min(Number(max), Number(value))
}

function durationsOf() {
  const names = ['forward', 'backward', 'inputGradient', 'weightGradient', 'transfer']
  return Object.fromEntries(names.map((name) => [name, Number(controls.elements[name].value)]))
}

/** At least so wide that the usual bar has room for its text; what is wider than the page scrolls. */
function widthOf({ spans, makespan }) {
  const lengths = spans.map(({ start, end }) => end - start).filter((length) => length > 0)
  const shortest = Math.min(...lengths)
  const needed = 68 + (lengths.length === 0 ? 0 : (makespan / shortest) * 20)
  return Math.round(Math.max(drawing.clientWidth, Math.min(needed, 8000)))
}

function showFigures({ stages, microbatches }, { makespan, bubble, ranks }, { criticalPath }) {
  const peaks = ranks.map(({ peakInFlight }) => peakInFlight)
  const most = Math.max(...peaks)
  const onPath = criticalPath.reduce((sum, { start, end }) => sum + end - start, 0)
  const figures = {
    step: short(makespan),
    bubble: `${(100 * bubble).toFixed(1)} %`,
    'peak activations': `${most} (${memory(most)})`,
    'critical path': `${criticalPath.length} actions, ${short(makespan - onPath)} in messages`,
    stages: `${stages} × ${microbatches} micro-batches`,
  }
  at('figures').replaceChildren(
    ...Object.entries(figures).map(([name, value]) =>
      element('div', {}, element('dt', {}, name), element('dd', {}, value)),
    ),
  )
}

function showRanks({ ranks }, { idle }) {
  const reasons = ['fill', 'wait', 'message', 'core', 'drain'].filter((reason) =>
    idle.some((each) => each.reason === reason),
  )
  const rows = ranks.map((each, rank) => [
    ...[`rank ${rank}`, short(each.busy), short(each.idle)],
    ...reasons.map((reason) =>
      short(
        idle
          .filter((one) => one.rank === rank && one.reason === reason)
          .reduce((sum, { start, end }) => sum + end - start, 0),
      ),
    ),
    ...[each.peakInFlight, memory(each.peakInFlight)],
  ])
  fillTable(at('ranks'), [['', 'busy', 'idle', ...reasons, 'peak', 'memory'], ...rows])
}

function memory(inFlight) {
  const megabytes = inFlight * Number(controls.elements.activation.value)
  return megabytes >= 1000 ? `${short(megabytes / 1000)} GB` : `${short(megabytes)} MB`
}

function plan() {
  const { elements } = at('plan')
  attempt(at('verdict'), () => {
    const value = (name) => Number(elements[name].value)
    const found = planLayouts({
      parameters: value('parameters') * 1e9,
      memory: value('memory') * 1e9,
      ranks: Math.min(512, value('ranks')),
      sequence: value('sequence'),
      batch: value('batch'),
      optimizer: elements.optimizer.value,
      flops: value('flops') * 1e12,
      link: value('link') * 1e9,
    })
    const { layers, width } = found.model
    const fitting = found.layouts.filter(({ fits }) => fits).length
    fillTable(at('layouts'), planTable(found, 20), (cells) => cells.at(-1))
    const best =
      found.best === undefined
        ? 'Nothing fits.'
        : `${fitting} of ${found.layouts.length} layouts fit.`
    return `${layers} layers of width ${width}. ${best}`
  })
}

/** Shows what `run` returns, or the first sentence of its error. */
function attempt(place, run) {
  try {
    place.textContent = run() ?? ''
  } catch (error) {
    place.textContent = error.message.replace(
      /\. Fix the argument.*|\. Correct .*| \(ERR_TSR_\w+\)$/s,
      '',
    )
  }
}

function fillTable(table, [head, ...rows], classOf = () => '') {
  table.replaceChildren(
    element(
      'thead',
      {},
      element('tr', {}, ...head.map((text) => element('th', { scope: 'col' }, text))),
    ),
    element(
      'tbody',
      {},
      ...rows.map((cells) =>
        element(
          'tr',
          { class: classOf(cells) },
          ...cells.map((cell) => element('td', {}, String(cell))),
        ),
      ),
    ),
  )
}

function element(name, attributes, ...children) {
  const made = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  made.append(...children)
  return made
}

function choose(cell) {
  if (cell?.dataset.text === undefined) return
  chosen?.classList.remove('chosen')
  cell.classList.add('chosen')
  chosen = cell
  at('why').textContent = cell.dataset.text
}

function cellsByRank() {
  const byRow = Map.groupBy(drawing.querySelectorAll('rect[data-text]'), (rect) =>
    Number(rect.getAttribute('y')),
  )
  const left = (rect) => Number(rect.getAttribute('x'))
  return [...byRow.keys()]
    .sort((a, b) => a - b)
    .map((y) => byRow.get(y).sort((a, b) => left(a) - left(b)))
}

function move(event) {
  const row = cells.findIndex((list) => list.includes(chosen))
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }
  const step = steps[event.key]
  if (step === undefined || cells.length === 0) return
  event.preventDefault()
  if (row < 0) choose(cells[0][0])
  else if (step[0] === 0) {
    choose(cells[row][cells[row].indexOf(chosen) + step[1]])
  } else {
    const x = Number(chosen.getAttribute('x'))
    choose(cells[row + step[0]]?.findLast((rect) => Number(rect.getAttribute('x')) <= x + 0.01))
  }
  const [from, to] = [drawing.scrollLeft, drawing.scrollLeft + drawing.clientWidth]
  const [start, length] = ['x', 'width'].map((name) => Number(chosen.getAttribute(name)))
  if (start < from || start + length > to) drawing.scrollLeft = start - drawing.clientWidth / 2
}

function readHash() {
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (name in controls.elements) controls.elements[name].value = value
  }
}

/** So that the address leads to what is shown. */
function writeHash() {
  const values = new URLSearchParams(new FormData(controls))
  try {
    history.replaceState(null, '', `#${values}`)
  } catch {
    // a page of a frame without an origin has no address of its own
  }
}

function short(value) {
  return String(Number(value.toPrecision(4)))
}
