import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { algorithmsOf, type AlgorithmName, type MessageEvent } from '@tsrun/training/browser'
import { keepSettings, settingOf } from './address.ts'
import {
  CHUNK_BYTES,
  collectives,
  recordCollective,
  theoryOf,
  timeMessages,
  type CollectiveName,
  type LinkCosts,
  type RecordedCollective,
} from './collective.ts'
import {
  Button,
  Choice,
  Fact,
  LinkSliders,
  PlaceChoice,
  Problem,
  Section,
  type Place,
} from './controls.tsx'
import { bytesText, colourOf, timeText } from './formats.ts'
import { MessageTimes } from './message-times.tsx'
import { RankCircle } from './rank-circle.tsx'
import { recordInWorkers } from './workers.ts'

/** Milliseconds between two events while the page plays. */
const PACE = 300

const sizes = { '2': '2', '3': '3', '4': '4', '5': '5', '6': '6', '8': '8' }

/** The algorithms that differ between ranks without shared memory. */
function algorithmChoices(name: CollectiveName): Record<string, string> {
  const hidden: readonly AlgorithmName[] = ['window', 'hierarchical']
  const names = algorithmsOf(name).filter((algorithm) => !hidden.includes(algorithm))
  return Object.fromEntries(names.map((algorithm) => [algorithm, algorithm]))
}

function firstAlgorithm(name: CollectiveName): string {
  return Object.keys(algorithmChoices(name))[0]!
}

interface Properties {
  readonly costs: LinkCosts
  readonly onCosts: (costs: LinkCosts) => void
}

export function CollectiveSection({ costs, onCosts }: Properties): JSX.Element {
  const [name, setName] = useState(() => settingOf('collective', collectives, 'allReduce'))
  const [chosen, setAlgorithm] = useState(() =>
    settingOf<string>('algorithm', algorithmChoices(name), firstAlgorithm(name)),
  )
  const [size, setSize] = useState(() => settingOf('size', sizes, '4'))
  const algorithm = chosen as AlgorithmName
  const ranks = Number(size)
  const [place, setPlace] = useState<Place>('thread')
  const [recorded, setRecorded] = useState<RecordedCollective>()
  const [problem, setProblem] = useState('')
  const [at, setAt] = useState(0)
  const [isPlaying, setPlaying] = useState(false)
  const last = recorded?.events.length ?? 0

  useEffect(() => {
    let isWanted = true
    setPlaying(false)
    const show = (next: RecordedCollective | undefined, reason = ''): void => {
      if (!isWanted) return
      setRecorded(next)
      setAt(0)
      setProblem(reason)
    }
    const record = place === 'workers' ? recordInWorkers : recordCollective
    void record(name, algorithm, ranks).then(show, (error: unknown) => {
      show(undefined, (error as Error).message)
    })
    return () => {
      isWanted = false
    }
  }, [name, algorithm, ranks, place])

  useEffect(() => {
    if (!isPlaying) return
    const timer = setInterval(() => {
      setAt((before) => Math.min(before + 1, last))
    }, PACE)
    return () => {
      clearInterval(timer)
    }
  }, [isPlaying, last])

  useEffect(() => {
    if (at === last) setPlaying(false)
  }, [at, last])

  const go = (steps: number): void => {
    setPlaying(false)
    setAt((before) => Math.max(0, Math.min(before + steps, last)))
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    const keys: Readonly<Record<string, number>> = {
      ArrowRight: 1,
      ArrowLeft: -1,
      Home: -last,
      End: last,
    }
    const steps = keys[event.key]
    if (steps === undefined) return
    event.preventDefault()
    go(steps)
  }
  return (
    <Section id="collective" title="1 · A collective, message by message">
      <p>
        Each arrow is a message that a rank has really sent. Rank r begins with its own colour in
        each chunk of its buffer, so the colours of a chunk show whose values it contains.
      </p>
      <div class="controls">
        <Choice
          label="Collective"
          value={name}
          options={collectives}
          onValue={(next) => {
            const algorithm = firstAlgorithm(next)
            setName(next)
            setAlgorithm(algorithm)
            keepSettings({ collective: next, algorithm })
          }}
        />
        <Choice<string>
          label="Algorithm"
          value={algorithm}
          options={algorithmChoices(name)}
          onValue={(next) => {
            setAlgorithm(next)
            keepSettings({ collective: name, algorithm: next })
          }}
        />
        <Choice
          label="Ranks"
          value={size}
          options={sizes}
          onValue={(next) => {
            setSize(next)
            keepSettings({ size: next })
          }}
        />
        <PlaceChoice place={place} onPlace={setPlace} />
        <LinkSliders costs={costs} onCosts={onCosts} />
      </div>
      <div class="controls">
        <Button
          label="◀ Back"
          disabled={at === 0}
          onPress={() => {
            go(-1)
          }}
        />
        <Button
          label="Step ▶"
          isMain
          disabled={at === last}
          onPress={() => {
            go(1)
          }}
        />
        <Button
          label={isPlaying ? 'Pause' : 'Play'}
          onPress={() => {
            if (at === last) setAt(0)
            setPlaying(!isPlaying)
          }}
        />
      </div>
      <Problem text={problem} />
      {recorded !== undefined && (
        <div class="two">
          <div
            class="figure"
            tabIndex={0}
            role="group"
            aria-label="Ranks and messages. The arrow keys step."
            onKeyDown={onKeyDown}
          >
            <RankCircle recorded={recorded} at={at} />
          </div>
          <div>
            <p role="status" class="event">
              {describe(recorded, at)}
            </p>
            <Facts recorded={recorded} at={at} name={name} algorithm={algorithm} costs={costs} />
            <MessageTimes recorded={recorded} at={at} costs={costs} />
            <Log events={recorded.events} at={at} />
          </div>
        </div>
      )}
    </Section>
  )
}

function describe({ events }: RecordedCollective, at: number): string {
  const event = events[at - 1]
  if (event === undefined) return `Nothing is sent yet; ${events.length / 2} messages follow.`
  const { kind, rank, peer, bytes } = event
  return kind === 'sent'
    ? `Rank ${rank} sends ${bytesText(bytes)} to rank ${peer}.`
    : `Rank ${rank} has received ${bytesText(bytes)} from rank ${peer}.`
}

interface FactsProperties {
  readonly recorded: RecordedCollective
  readonly at: number
  readonly name: CollectiveName
  readonly algorithm: AlgorithmName
  readonly costs: LinkCosts
}

function Facts({ recorded, at, name, algorithm, costs }: FactsProperties): JSX.Element {
  const { events, ranks } = recorded
  const buffer = ranks * CHUNK_BYTES
  const shown = events.slice(0, at)
  const bytesOf = (kind: MessageEvent['kind'], of = shown): number =>
    of.reduce((sum, event) => sum + (event.kind === kind ? event.bytes : 0), 0)
  const sent = Array.from({ length: ranks }, (_, rank) =>
    bytesOf(
      'sent',
      shown.filter((event) => event.rank === rank),
    ),
  )
  const most = Math.max(
    ...sent.map((_, rank) =>
      bytesOf(
        'sent',
        events.filter((event) => event.rank === rank),
      ),
    ),
  )
  const time = Math.max(...timeMessages(recorded, costs).map(({ arrival }) => arrival))
  const theory = theoryOf(name, algorithm, ranks, buffer, costs)
  return (
    <dl class="facts">
      <Fact label="bytes in flight">{bytesText(bytesOf('sent') - bytesOf('received'))}</Fact>
      <Fact label="sent by rank 0, 1, …">{sent.map(bytesText).join(' · ')}</Fact>
      <Fact label={`most sent by a rank, of a buffer of S = ${bytesText(buffer)}`}>
        {(most / buffer).toFixed(2)} S
        {theory !== undefined && <small> theory: {theory.bytes} S</small>}
      </Fact>
      <Fact label="time on this network">
        {timeText(time)}
        {theory !== undefined && (
          <small>
            {' '}
            {theory.latencies} α + {theory.bytes} S/β = {timeText(theory.time)}
          </small>
        )}
      </Fact>
    </dl>
  )
}

function Log({ events, at }: { readonly events: readonly MessageEvent[]; readonly at: number }) {
  const list = useRef<HTMLOListElement>(null)
  useEffect(() => {
    const { current } = list
    const entry = current?.children[at - 1] as HTMLElement | undefined
    if (current !== null && entry !== undefined) {
      current.scrollTop = entry.offsetTop - current.offsetTop - current.clientHeight / 2
    }
  }, [at, events])
  return (
    <ol class="log" ref={list} tabIndex={0} aria-label="All events">
      {events.map(({ kind, rank, peer, bytes }, index) => (
        <li key={index} class={index === at - 1 ? 'now' : ''}>
          <b style={colourOf(rank)}>rank {rank}</b> {kind === 'sent' ? '→' : '←'}{' '}
          <b style={colourOf(peer)}>rank {peer}</b> {bytesText(bytes)}{' '}
          {kind === 'sent' ? 'sent' : 'received'}
        </li>
      ))}
    </ol>
  )
}
