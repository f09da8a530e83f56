// A rank that does nothing: its time is the cost of starting it.
export {}
