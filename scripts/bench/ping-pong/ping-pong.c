// A minimal ping-pong between two processes over a TCP connection on the loopback:
// ping-pong BYTES WARM_UPS REPEATS prints the round trips in microseconds, one per line.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void put(int fd, const char *buffer, long bytes) {
  for (long done = 0; done < bytes;) {
    long n = write(fd, buffer + done, bytes - done);
    if (n <= 0) fail("write");
    done += n;
  }
}

static void take(int fd, char *buffer, long bytes) {
  for (long done = 0; done < bytes;) {
    long n = read(fd, buffer + done, bytes - done);
    if (n <= 0) fail("read");
    done += n;
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  long bytes = atol(argv[1]), warm_ups = atol(argv[2]), repeats = atol(argv[3]);
  char *buffer = calloc(bytes, 1);
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t length = sizeof address;
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (struct sockaddr *)&address, length) != 0) fail("bind");
  if (listen(listener, 1) != 0) fail("listen");
  getsockname(listener, (struct sockaddr *)&address, &length);
  pid_t child = fork();
  if (child == 0) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, length) != 0) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (long i = 0; i < warm_ups + repeats; i++) {
      take(fd, buffer, bytes);
      put(fd, buffer, bytes);
    }
    return 0;
  }
  int fd = accept(listener, NULL, NULL);
  if (fd < 0) fail("accept");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  for (long i = -warm_ups; i < repeats; i++) {
    double start = now();
    put(fd, buffer, bytes);
    take(fd, buffer, bytes);
    if (i >= 0) printf("%.3f\n", now() - start);
  }
  wait(NULL);
  return 0;
}
