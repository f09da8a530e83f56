import type { ProcessGroup } from './process-group.ts'

/** Options of what makes groups, and waits for other ranks to do the same. */
export interface JoinOptions {
  /** Milliseconds until the wait is given up; default: the time-out of the group. */
  readonly timeout?: number
  /** Ends the wait; what the other ranks have agreed on before stays. */
  readonly signal?: AbortSignal
}

export interface NewGroupOptions extends JoinOptions {
  /** For errors and logs, the same on all members; default: the ranks. */
  readonly name?: string
  /** Default time-out of the group's operations, and of making it, in milliseconds. */
  readonly timeout?: number
}

/** How a group relates to the world and to other groups. */
export interface GroupRelations {
  /**
   * How often the world was made anew by `reconfigure`; 0 at first. A process that takes the place of
   * a lost rank sees that it is not the first by a generation above 0.
   */
  readonly generation: number
  /** The rank in the world of a rank of this group. @throws ERR_TSR_RANK_RANGE */
  globalRank(rank: number): number
  /** The rank in this group of a rank of the world. @throws ERR_TSR_RANK_RANGE */
  groupRank(worldRank: number): number
  /**
   * Cuts the group up as MPI_Comm_split does: the ranks that give the same colour get a group of
   * their own, ordered by key, then by rank. All ranks of the group call it.
   *
   * @param color - an integer, or null for a rank that is in none of the groups
   * @param key - default: the rank in this group
   * @returns undefined for colour null
   */
  split(
    color: number | null,
    key?: number,
    options?: NewGroupOptions,
  ): Promise<ProcessGroup | undefined>
  /**
   * After a loss: a group of the ranks that are still there, in the order of this one, as
   * MPIX_Comm_shrink. This group ends: what runs on it fails on every rank, so that those that have
   * not seen the loss come too. The ranks agree through the store, also when they have seen different
   * losses, and when more are lost meanwhile; two that have lost sight of each other cannot both stay.
   * A rank that has not come when the time-out ends counts as lost.
   *
   * @throws ERR_TSR_EXCLUDED on a rank that the others take for lost; ERR_TSR_STORE_* when the store
   *   is gone
   */
  shrink(options?: NewGroupOptions): Promise<ProcessGroup>
  /**
   * After a loss: makes the whole world anew, when the processes of the lost ranks were started again
   * (these call `initProcessGroup` as always). All surviving ranks call it, on any group of the world;
   * every group of the old world ends, and nothing sent there arrives in the new one.
   *
   * @returns the group of all ranks; it is the default group where the old world was
   * @throws ERR_TSR_TIMEOUT naming the ranks that did not come; it may be called again then
   */
  reconfigure(options?: JoinOptions): Promise<ProcessGroup>
}
