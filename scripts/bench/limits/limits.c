// How fast one process copies and adds float32 arrays that do not fit into the caches: limits BYTES
// SECONDS prints the bytes per second of memcpy (read and written) and of c = a + b (two read, one
// written), each measured for so long, so that processes that start together overlap.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) static void add(float *restrict c, const float *restrict a,
                                          const float *restrict b, long count) {
  for (long i = 0; i < count; i++) c[i] = a[i] + b[i];
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  long bytes = atol(argv[1]), count = bytes / sizeof(float);
  double seconds = atof(argv[2]), start, copied, added;
  long copies = 0, additions = 0;
  float *a = malloc(bytes), *b = malloc(bytes), *c = malloc(bytes);
  for (long i = 0; i < count; i++) a[i] = 1, b[i] = 2, c[i] = 0;
  start = now();
  do {
    memcpy(c, a, bytes);
    copies++;
  } while ((copied = now() - start) < seconds);
  start = now();
  do {
    add(c, a, b, count);
    additions++;
  } while ((added = now() - start) < seconds);
  printf("%.0f %.0f\n", 2.0 * bytes * copies / copied, 3.0 * bytes * additions / added);
  return c[count - 1] == 3 ? 0 : 1;
}
