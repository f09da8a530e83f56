// a += b on float32, in a loop that the compiler vectorizes: add COUNT REPEATS prints the microseconds
// of each run, one per line.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

__attribute__((noinline)) static void add(float *restrict a, const float *restrict b, long count) {
  for (long i = 0; i < count; i++) a[i] += b[i];
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  long count = atol(argv[1]), repeats = atol(argv[2]);
  float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
  for (long i = 0; i < count; i++) a[i] = 0, b[i] = 1;
  add(a, b, count);
  for (long i = 0; i < repeats; i++) {
    double start = now();
    add(a, b, count);
    printf("%.3f\n", now() - start);
  }
  return a[count - 1] == repeats + 1 ? 0 : 1;
}
