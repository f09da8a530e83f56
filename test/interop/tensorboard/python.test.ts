import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tensorBoard } from '@tsrun/training'
import { needing } from '../../needs.ts'

// it takes seconds to load

const program = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
events.Reload()
tensors = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"]}
print(json.dumps({
    "scalars": {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]},
    "texts": {tag: [[e.step, e.tensor_proto.string_val[0].decode()] for e in found] for tag, found in tensors.items()},
    "histograms": {tag: [
        [e.step, v.min, v.max, v.num, v.sum, v.sum_squares, len(v.bucket_limit), sum(v.bucket)]
        for e in events.Histograms(tag) for v in [e.histogram_value]] for tag in events.Tags()["histograms"]},
    "text plugin": list(events.PluginTagToContent("text")),
}))`

const python = process.env['TSRUN_BENCH_PYTHON'] ?? 'python3'
const hasTensorBoard = spawnSync(python, ['-c', 'import tensorboard']).status === 0

const { it: itHere } = needing(hasTensorBoard, 'tensorboard')

itHere(
  'Python’s tensorboard reads the logs of tsrun, and shows a restarted job as one run',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-tensorboard-'))
    try {
      for (const start of [0, 1]) {
        const log = tensorBoard(folder, { rank: 0 })
        for (let step = 200 * start; step < 200 * (start + 1); step++) {
          log.scalar('train/loss', 1 / (1 + step), step)
        }
        log.text('sample', `Größe ${start}`, start)
        log.histogram('h.0/weight', Float32Array.of(-1, 0, 0.5, 3), start)
        await log.close()
      }
      const { stdout, stderr } = spawnSync(python, ['-c', program, folder], { encoding: 'utf8' })
      const found = JSON.parse(stdout || JSON.stringify(stderr)) as object
      const scalars = Array.from({ length: 400 }, (_, step) => [step, Math.fround(1 / (1 + step))])
      const distribution = [-1, 3, 4, 2.5, 10.25, 30, 4]
      expect(found).toEqual({
        scalars: { 'train/loss': scalars },
        texts: {
          sample: [
            [0, 'Größe 0'],
            [1, 'Größe 1'],
          ],
        },
        histograms: {
          'h.0/weight': [
            [0, ...distribution],
            [1, ...distribution],
          ],
        },
        'text plugin': ['sample'],
      })
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
