import { infrastructureError, userError, type ErrorSection } from './definition.ts'

export const distributedErrors = {
  ERR_TSR_MISMATCH: userError(
    'Group {group}, operation #{sequence}: this rank ({rank}) runs {mine} but rank {peer} runs {theirs}',
    'Call the same operations in the same order, with the same dtype and length, on all ranks of a group.',
  ),
  ERR_TSR_PEER_LOST: {
    category: 'infrastructure',
    message: 'Rank {peer} is gone ({reason}) while rank {rank} was in {operation} of group {group}',
    advice: 'Look for the first error of that rank; this error is only its consequence.',
    consequence: true,
  },
  ERR_TSR_PEER_LEFT: userError(
    'Rank {peer} has left the job while rank {rank} was in {operation} of group {group}',
    'Check for uneven batches and early returns: that rank ran fewer operations than this one.',
  ),
  ERR_TSR_OPERATION_TIMEOUT: infrastructureError(
    'Rank {rank}: {operation} of group {group} timed out after {milliseconds} ms; waiting for rank {peers}',
    'Look at what the missing ranks are doing; raise `timeout` if they are only slow.',
  ),
  ERR_TSR_BARRIER_MISSING: infrastructureError(
    'Rank {rank}: monitoredBarrier of group {group}: rank {missing} has not arrived after {milliseconds} ms',
    'Look at what the missing ranks are doing; raise `timeout` if they are only slow.',
  ),
  ERR_TSR_PEER_FAILED: {
    category: 'infrastructure',
    message:
      'Rank {rank}: {operation} of group {group} failed because rank {peer} reported: {reason}',
    advice: 'Look for the first error of that rank; this error is only its consequence.',
    consequence: true,
  },
  ERR_TSR_OPERATION_ABORTED: userError(
    'Rank {rank}: {operation} of group {group} was aborted',
    'Ignore this error if the abort was intended.',
  ),
  ERR_TSR_GROUP_FAILED: {
    category: 'infrastructure',
    message:
      'Rank {rank}: {operation} was refused because group {group} has already failed: {reason}',
    advice: 'Look at the first error of the group; create a new group to continue.',
    consequence: true,
  },
  ERR_TSR_NOT_AWAITED: userError(
    'Rank {rank}: {operation} of group {group} was never awaited, so its buffer may have been read too early',
    'Write `await` before the call, or call wait() on the Work that it returns.',
  ),
  ERR_TSR_GROUP_DESTROYED: userError(
    '{operation} was called on group {group} after the group was destroyed',
    'Call the operation, and await it, before destroyProcessGroup().',
  ),
  ERR_TSR_RANK_RANGE: userError(
    '{operation}: rank {peer} is not in group {group} of size {size}',
    'Give a rank of the group, from 0 to its size - 1.',
  ),
  ERR_TSR_SELF_SEND: userError(
    '{operation}: rank {rank} blocks on a message to itself, but has not called the matching operation',
    'Call the matching send or receive first, or both in one batchIsendIrecv(); or copy the buffer instead.',
  ),
  ERR_TSR_BUFFER: userError(
    '{operation}: {problem}',
    'Pass a typed array of a supported dtype and of the length that the operation needs.',
  ),
  ERR_TSR_REDUCTION: userError(
    '{operation}: {reduction} is not defined for {dtype}, which supports {allowed}',
    'Choose another `op`, or convert the buffer to a dtype that supports it.',
  ),
  ERR_TSR_ARENA_EXHAUSTED: infrastructureError(
    'The arena of rank {rank} has no room for {bytes} bytes ({used} of {capacity} in use)',
    'Free buffers with group.free(), split the operation, or set a larger TSRUN_ARENA.',
  ),
  ERR_TSR_ARENA_UNAVAILABLE: infrastructureError(
    'Rank {rank} cannot allocate {bytes} bytes of address space for its arena: {reason}',
    'Raise `ulimit -v`, or start Node with --disable-wasm-trap-handler, as tsrun does under such a limit.',
  ),
  ERR_TSR_ENGINE_MEMORY: infrastructureError(
    'The engine of rank {rank} has no room for {bytes} bytes ({used} of {capacity} in use)',
    'Run fewer operations at once, and leave large buffers to the default algorithm. With a TSRUN_ARENA of less than 384MiB, the engine has less memory.',
  ),
  ERR_TSR_TOO_MANY_OPERATIONS: userError(
    'Rank {rank} has {limit} operations in progress, which is the maximum',
    'Await some operations before starting more.',
  ),
  ERR_TSR_TRANSPORT_UNAVAILABLE: infrastructureError(
    'Transport {transport} cannot be used: {reason}',
    "Choose another transport, or 'auto'.",
  ),
  ERR_TSR_TUNING: userError(
    'The tuning file {path} cannot be used: {problem}',
    'Write a tuning file with `npm run bench -- tune --output FILE`, or unset TSRUN_TUNING.',
  ),
  ERR_TSR_TUNING_DIFFERS: userError(
    'Rank {rank} chooses algorithms by {mine}, but rank {peer} by {theirs}, and the two differ',
    'Give all ranks the same TSRUN_TUNING file, or none.',
  ),
  ERR_TSR_MPI: infrastructureError(
    '{call} of {library} failed: {reason}',
    'Call the same operations in the same order, with the same dtype and length, on all ranks of a group; otherwise see the documentation of your MPI.',
  ),
  ERR_TSR_MPI_LAUNCH: userError(
    'The MPI world differs from the one that was started: {problem}',
    'Start with the mpirun of the same MPI (mpirun -n 4 node script.js), or with srun --mpi=pmix or --mpi=pmi2; TSRUN_LIBMPI names another library.',
  ),
  ERR_TSR_CONNECT: infrastructureError(
    'Rank {rank} could not connect to rank {peer} at {endpoint} within {milliseconds} ms: {reason}',
    'Check that this host can reach the address and that no firewall is in the way.',
  ),
  ERR_TSR_PROTECTION: userError(
    'Rank {rank} has {theirs}, and rank {other} has {ours}',
    'Start tsrun with --tls on all hosts, or on none.',
  ),
  ERR_TSR_PORT_RANGE: userError(
    'Rank {rank} found no free port from {first} to {last} at {host}',
    'Give a wider --port-range (TSRUN_PORT_RANGE), with at least one port for each rank of a host.',
  ),
  ERR_TSR_SYNC_UNSUPPORTED: userError(
    '{operation}: synchronous calls need the worker or the inline engine; this one is {engine}',
    'Await the asynchronous form.',
  ),
  ERR_TSR_NOT_INITIALIZED: userError(
    '{operation} was called before initProcessGroup()',
    'Await initProcessGroup() first.',
  ),
  ERR_TSR_ALREADY_INITIALIZED: userError(
    'initProcessGroup() was called twice',
    'Call destroyProcessGroup() first, or use the existing group.',
  ),
  ERR_TSR_MESH_SHAPE: userError(
    'A mesh of {shape} has {product} ranks, but the world has {size}',
    'Make the product of the axes equal to the number of ranks (tsrun --nproc).',
  ),
  ERR_TSR_GROUP_MEMBERS: userError(
    'newGroup: {problem}',
    'Pass distinct ranks of the world that include this rank, and the same list on every member.',
  ),
  ERR_TSR_FLIGHT_DIRECTORY: userError(
    'Cannot write the flight record to {directory}: {reason}',
    'Choose another folder with --log-dir or TSRUN_FLIGHT_DIR.',
  ),
  ERR_TSR_GROUP_LEFT: userError(
    'Rank {peer} destroyed group {group} while rank {rank} was in {operation} of the group',
    'Destroy the group after its last operation: that rank ran fewer operations on it than this one.',
  ),
  ERR_TSR_TOO_MANY_GROUPS: userError(
    'The world has created {limit} groups, which is the maximum',
    'Create groups once and keep them: the number of a destroyed group is never used again.',
  ),
  ERR_TSR_EXCLUDED: infrastructureError(
    'Rank {rank} is excluded from the shrunken group {group}: the remaining ranks ({survivors}) lost the connection to it, or it called shrink() too late',
    'End this process. If it was healthy, look for a broken network. Once restarted, the process can rejoin when the remaining ranks call reconfigure().',
  ),
  ERR_TSR_CANNOT_RECONFIGURE: userError(
    'reconfigure() of group {group}: {reason}',
    'Call reconfigure() once on the newest world, on ranks that joined with initProcessGroup().',
  ),
  ERR_TSR_DEADLOCK: userError(
    'The in-process world is deadlocked: {waiting}',
    'Look for the rank that waits for a message that no other rank sends.',
  ),
} as const satisfies ErrorSection
