/** A fresh connection, before its transport takes it over. */
export interface ByteChannel {
  write(bytes: Uint8Array): Promise<void>
  /** Exactly `length` bytes. Rejects when the stream ends before. */
  read(length: number): Promise<Uint8Array>
  close(): void
}
