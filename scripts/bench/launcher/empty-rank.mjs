// A rank that does nothing: what is left is the cost of starting it.
export {}
