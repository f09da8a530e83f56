// The sliding windows of convolutions and pooling over images [batch, height, width, channels]. Windows
// are numbered in the order of the outputs [batch, rows, columns]. Values outside an image are 0.

/** backend/wasm/windows.ts writes the fields up to `left`, in this order. Kernels write the others. */
@unmanaged
export class Geometry {
  height: i32 = 0
  width: i32 = 0
  channels: i32 = 0
  rows: i32 = 0
  columns: i32 = 0
  tall: i32 = 0
  wide: i32 = 0
  down: i32 = 0
  right: i32 = 0
  /** The dilation: the distance in rows and columns between neighbouring values of a window. */
  apartRows: i32 = 0
  apartColumns: i32 = 0
  top: i32 = 0
  left: i32 = 0

  /** The byte offset of the image that contains the current window. */
  image: usize = 0
  /** The first row and column of the current window. They may be outside the image. */
  row: i32 = 0
  column: i32 = 0

  /** Moves to the window `index`. Must not be called if there are no windows. */
  goTo(index: i32): void {
    const line = index / this.columns
    this.image = <usize>(line / this.rows) * this.size
    this.row = (line % this.rows) * this.down - this.top
    this.column = (index % this.columns) * this.right - this.left
  }

  /** Moves forward, at most to the next row of outputs. Avoids the slow divisions of `goTo`. */
  @inline
  advance(windows: i32): void {
    this.column += windows * this.right
    if (this.column == this.columns * this.right - this.left) {
      this.column = -this.left
      this.row += this.down
      if (this.row == this.rows * this.down - this.top) {
        this.row = -this.top
        this.image += this.size
      }
    }
  }

  /** Whether the current window is the first of its image. */
  @inline
  get isFirst(): bool {
    return this.column == -this.left && this.row == -this.top
  }

  @inline
  get size(): usize {
    return <usize>this.height * this.line
  }

  @inline
  get pixel(): usize {
    return <usize>this.channels << 2
  }

  @inline
  get line(): usize {
    return <usize>this.width * this.pixel
  }
}
