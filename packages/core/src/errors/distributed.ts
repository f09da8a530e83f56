import type { ErrorSection } from './definition.ts'

export const distributedErrors = {
  ERR_TSR_MISMATCH: {
    category: 'user',
    message:
      'Group {group}, operation #{sequence}: this rank ({rank}) runs {mine} but rank {peer} runs {theirs}',
    advice:
      'All ranks of a group must call the same operations in the same order, with the same dtype and length.',
  },
  ERR_TSR_PEER_LOST: {
    category: 'infrastructure',
    message: 'Rank {peer} is gone ({reason}) while rank {rank} was in {operation} of group {group}',
    advice: 'Look for the first error of that rank: this one is only its consequence.',
    consequence: true,
  },
  ERR_TSR_PEER_LEFT: {
    category: 'user',
    message: 'Rank {peer} has left the job while rank {rank} was in {operation} of group {group}',
    advice: 'That rank ran fewer operations than this one; check uneven batches and early returns.',
  },
  ERR_TSR_OPERATION_TIMEOUT: {
    category: 'infrastructure',
    message:
      'Rank {rank}: {operation} of group {group} timed out after {milliseconds} ms; waiting for rank {peers}',
    advice: 'Look at what the missing ranks do; raise `timeout` if they are only slow.',
  },
  ERR_TSR_BARRIER_MISSING: {
    category: 'infrastructure',
    message:
      'Rank {rank}: monitoredBarrier of group {group}: after {milliseconds} ms rank {missing} has not come',
    advice: 'Look at what the missing ranks do; raise `timeout` if they are only slow.',
  },
  ERR_TSR_PEER_FAILED: {
    category: 'infrastructure',
    message:
      'Rank {rank}: {operation} of group {group} failed because rank {peer} reported: {reason}',
    advice: 'Look for the first error of that rank: this one is only its consequence.',
    consequence: true,
  },
  ERR_TSR_OPERATION_ABORTED: {
    category: 'user',
    message: 'Rank {rank}: {operation} of group {group} was aborted',
    advice: 'Nothing to do if the abort was meant.',
  },
  ERR_TSR_GROUP_FAILED: {
    category: 'infrastructure',
    message: 'Rank {rank}: {operation} refused, group {group} has failed before: {reason}',
    advice: 'See the first error of the group; make a new group to go on.',
    consequence: true,
  },
  ERR_TSR_GROUP_DESTROYED: {
    category: 'user',
    message: '{operation} called on group {group} after it was destroyed',
    advice: 'Call it before destroyProcessGroup().',
  },
  ERR_TSR_RANK_RANGE: {
    category: 'user',
    message: '{operation}: rank {peer} is not in group {group} of size {size}',
    advice: 'Ranks of a group run from 0 to size - 1.',
  },
  ERR_TSR_SELF_SEND: {
    category: 'user',
    message:
      '{operation}: rank {rank} blocks on a message with itself whose other half it has not called',
    advice:
      'Call the other half first, or both in one batchIsendIrecv(); or copy the buffer instead.',
  },
  ERR_TSR_BUFFER: {
    category: 'user',
    message: '{operation}: {problem}',
    advice: 'Pass a typed array of a supported dtype and of the length that the operation needs.',
  },
  ERR_TSR_REDUCTION: {
    category: 'user',
    message: '{operation}: {reduction} is not defined for {dtype}; {dtype} has {allowed}',
    advice: 'Choose another `op`, or convert the buffer to a dtype that has it.',
  },
  ERR_TSR_ARENA_EXHAUSTED: {
    category: 'infrastructure',
    message: 'The arena of rank {rank} has no room for {bytes} bytes ({used} of {capacity} in use)',
    advice:
      'Free buffers with group.free(), or start with a larger TSRUN_ARENA (for example 2GiB).',
  },
  ERR_TSR_ENGINE_MEMORY: {
    category: 'infrastructure',
    message:
      'The engine of rank {rank} has no room for {bytes} bytes ({used} of {capacity} in use)',
    advice:
      'Keep fewer operations under way at once, and leave large buffers to the default algorithm. A TSRUN_ARENA of less than 384MiB makes this room smaller.',
  },
  ERR_TSR_TOO_MANY_OPERATIONS: {
    category: 'user',
    message: 'Rank {rank} has {limit} operations under way, the most there can be',
    advice: 'Await operations before starting more.',
  },
  ERR_TSR_TRANSPORT_UNAVAILABLE: {
    category: 'infrastructure',
    message: 'Transport {transport} cannot be used: {reason}',
    advice: "Choose another transport, or 'auto'.",
  },
  ERR_TSR_TUNING: {
    category: 'user',
    message: 'The tuning file {path} cannot be used: {problem}',
    advice: 'Write one with `npm run bench -- tune --output FILE`, or unset TSRUN_TUNING.',
  },
  ERR_TSR_TUNING_DIFFERS: {
    category: 'user',
    message:
      'Rank {rank} chooses algorithms by {mine}, rank {peer} by {theirs}, and the two differ',
    advice: 'Give all ranks the same TSRUN_TUNING file, or none.',
  },
  ERR_TSR_MPI: {
    category: 'infrastructure',
    message: '{call} of {library} failed: {reason}',
    advice:
      'All ranks of a group must call the same operations in the same order, with the same dtype and length; else see the documentation of your MPI.',
  },
  ERR_TSR_MPI_LAUNCH: {
    category: 'user',
    message: 'The MPI world is not the one that was started: {problem}',
    advice:
      'Start with the mpirun of the same MPI (mpirun -n 4 node script.js), or with srun --mpi=pmix or --mpi=pmi2; TSRUN_LIBMPI names another library.',
  },
  ERR_TSR_CONNECT: {
    category: 'infrastructure',
    message:
      'Rank {rank} could not connect to rank {peer} at {endpoint} within {milliseconds} ms: {reason}',
    advice: 'Check that the address is reachable from this host and that no firewall is between.',
  },
  ERR_TSR_PORT_RANGE: {
    category: 'user',
    message: 'Rank {rank} finds no free port from {first} to {last} at {host}',
    advice:
      'Give a wider --port-range (TSRUN_PORT_RANGE), at least one port for each rank of a host.',
  },
  ERR_TSR_SYNC_UNSUPPORTED: {
    category: 'user',
    message:
      '{operation}: synchronous calls need the worker or the inline engine; this one is {engine}',
    advice: 'Await the asynchronous form.',
  },
  ERR_TSR_NOT_INITIALIZED: {
    category: 'user',
    message: '{operation} called before initProcessGroup()',
    advice: 'Await initProcessGroup() first.',
  },
  ERR_TSR_ALREADY_INITIALIZED: {
    category: 'user',
    message: 'initProcessGroup() was called twice',
    advice: 'Call destroyProcessGroup() first, or use the group that exists.',
  },
  ERR_TSR_MESH_SHAPE: {
    category: 'user',
    message: 'A mesh of {shape} has {product} ranks, but the world has {size}',
    advice: 'Make the product of the axes equal the number of ranks (tsrun --nproc).',
  },
  ERR_TSR_GROUP_MEMBERS: {
    category: 'user',
    message: 'newGroup: {problem}',
    advice:
      'Pass distinct ranks of the world that include this rank, the same list on every member.',
  },
  ERR_TSR_FLIGHT_DIRECTORY: {
    category: 'user',
    message: 'Cannot write the flight recorder in {directory}: {reason}',
    advice: 'Choose another folder, or another TSRUN_FLIGHT_DIR.',
  },
  ERR_TSR_GROUP_LEFT: {
    category: 'user',
    message: 'Rank {peer} has destroyed group {group} while rank {rank} was in {operation} of it',
    advice: 'That rank ran fewer operations on the group than this one: destroy it after the last.',
  },
  ERR_TSR_TOO_MANY_GROUPS: {
    category: 'user',
    message: 'The world has made {limit} groups, the most there can be',
    advice: 'Make groups once and keep them; numbers are never used again.',
  },
  ERR_TSR_EXCLUDED: {
    category: 'infrastructure',
    message:
      'Rank {rank} takes no part in what is left of group {group}: the others ({survivors}) have lost it, or it came too late to shrink()',
    advice:
      'End this process. Started again, it can come back when the others call reconfigure(); look for a broken network if it is alive and well.',
  },
  ERR_TSR_CANNOT_RECONFIGURE: {
    category: 'user',
    message: 'reconfigure() of group {group}: {reason}',
    advice: 'Call it once in each life of the world, on ranks that initProcessGroup() has joined.',
  },
  ERR_TSR_DEADLOCK: {
    category: 'user',
    message: 'The in-process world stands still: {waiting}',
    advice: 'Some rank waits for a message that nobody sends.',
  },
} as const satisfies ErrorSection
