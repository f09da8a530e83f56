// One rank of the peer Open MPI: openmpi-rank OUTPUT op:count:warmUps:repeats ...
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

typedef struct {
  char op[32];
  int count, warmUps, repeats;
  float *full, *part, *other;
} Step;

static int is(const Step *s, const char *op) { return strcmp(s->op, op) == 0; }

static void run(const Step *s) {
  int slice = s->count / ranks;
  if (is(s, "allReduce")) {
    MPI_Allreduce(MPI_IN_PLACE, s->full, s->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (is(s, "reduceScatter")) {
    MPI_Reduce_scatter_block(s->full, s->part, slice, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (is(s, "allGather")) {
    MPI_Allgather(s->part, slice, MPI_FLOAT, s->full, slice, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (is(s, "broadcast")) {
    MPI_Bcast(s->full, s->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else if (is(s, "allToAll")) {
    MPI_Alltoall(s->full, slice, MPI_FLOAT, s->other, slice, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (is(s, "sendRecv")) {
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    MPI_Sendrecv(s->full, s->count, MPI_FLOAT, right, 0, s->other, s->count, MPI_FLOAT, left, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    fprintf(stderr, "unknown operation %s\n", s->op);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

static void fill(float *values, int count, float value) {
  for (int i = 0; i < count; i++) values[i] = value;
}

// Runs the operation once on known values, because the time of a wrong result means nothing.
static void check(const Step *s) {
  int slice = s->count / ranks, length = s->count;
  float *result = s->full;
  float first = ranks * (ranks + 1) / 2, last = first;
  if (is(s, "reduceScatter")) result = s->part, length = slice;
  if (is(s, "allToAll") || is(s, "sendRecv")) result = s->other;
  if (is(s, "allGather") || is(s, "allToAll")) first = 1, last = ranks;
  if (is(s, "broadcast")) first = last = 1;
  if (is(s, "sendRecv")) first = last = (rank + ranks - 1) % ranks + 1;
  fill(s->full, s->count, rank + 1);
  fill(s->part, slice, rank + 1);
  fill(s->other, s->count, 0);
  run(s);
  if (result[0] != first || result[length - 1] != last) {
    fprintf(stderr, "rank %d: %s of %d elements gave %g .. %g\n", rank, s->op, s->count, result[0],
            result[length - 1]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  fill(s->full, s->count, 0);
  fill(s->part, slice, 0);
}

static void measure(const Step *s, FILE *output) {
  double *us = calloc(s->repeats, sizeof *us);
  check(s);
  for (int i = -s->warmUps; i < s->repeats; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    run(s);
    if (i >= 0) us[i] = (MPI_Wtime() - start) * 1e6;
  }
  MPI_Allreduce(MPI_IN_PLACE, us, s->repeats, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (output != NULL) {
    fprintf(output, "{\"op\":\"%s\",\"count\":%d,\"us\":[", s->op, s->count);
    for (int i = 0; i < s->repeats; i++) fprintf(output, "%s%.3f", i ? "," : "", us[i]);
    fprintf(output, "]}\n");
  }
  free(us);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  FILE *output = rank == 0 ? fopen(argv[1], "w") : NULL;
  for (int i = 2; i < argc; i++) {
    Step s;
    if (sscanf(argv[i], "%31[^:]:%d:%d:%d", s.op, &s.count, &s.warmUps, &s.repeats) != 4) {
      fprintf(stderr, "cannot read %s\n", argv[i]);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    s.full = malloc(sizeof(float) * s.count);
    s.part = malloc(sizeof(float) * (s.count / ranks + 1));
    s.other = malloc(sizeof(float) * s.count);
    measure(&s, output);
    free(s.full);
    free(s.part);
    free(s.other);
  }
  if (output != NULL) fclose(output);
  MPI_Finalize();
  return 0;
}
