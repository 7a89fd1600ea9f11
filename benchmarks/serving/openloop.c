/* Sends HTTP/1.1 requests when they are due, whether or not earlier ones were answered (open loop), or keeps a fixed
   number in flight (closed loop). One thread.

   openloop PORT REQUESTS OUT RATE SECONDS CLIENTS COUNT TIMEOUT_MS SEED

   RATE > 0: Poisson arrivals of RATE a second for SECONDS. RATE 0: CLIENTS in flight until COUNT are sent, or for SECONDS.
   REQUESTS has lines of PATH<tab>BODY, used in order and again from the start; an empty body is a GET.
   OUT gets a line for each request: due (µs from the start), sent (µs after due), status (0 where no answer came),
   latency (µs from due to the last byte of the answer, so that waiting for the generator or a connection counts). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 16384
#define HEAD_BYTES 8192
#define IDLE_S 2.0 /* shorter than any server's keep-alive, so that it rarely closes a connection as we use it */

typedef struct {
  char *bytes;
  size_t length;
} request_t;

typedef struct {
  int fd, busy, reused, head_done, close_after;
  const request_t *request;
  size_t written, have, need;
  double due, sent, idle_since;
  int status;
  char head[HEAD_BYTES + 1];
} connection_t;

static connection_t *connections[MAX_CONNECTIONS];
static int opened, in_flight, poll_fd, port;
static double start, timeout_s;
static FILE *out;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static request_t *read_requests(const char *path, size_t *count) {
  FILE *file = fopen(path, "r");
  if (!file) die(path);
  request_t *all = NULL;
  char *line = NULL;
  size_t room = 0, capacity = 0;
  ssize_t length;
  while ((length = getline(&line, &capacity, file)) > 0) {
    if (line[length - 1] == '\n') line[--length] = 0;
    char *body = strchr(line, '\t');
    if (!body) continue;
    *body++ = 0;
    if (*count == room) all = realloc(all, (room = room * 2 + 1024) * sizeof *all);
    request_t *made = &all[(*count)++];
    const char *form = *body ? "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                               "Content-Length: %zu\r\n\r\n%s"
                             : "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    int size = asprintf(&made->bytes, form, line, strlen(body), body);
    if (size < 0) die("asprintf");
    made->length = size;
  }
  fclose(file);
  if (!*count) exit((fprintf(stderr, "%s holds no requests\n", path), 1));
  return all;
}

static void close_connection(connection_t *c) {
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
}

static void finish(connection_t *c, int status) {
  double end = now();
  if (!c->sent) c->sent = end;
  fprintf(out, "%.0f %.0f %d %.0f\n", (c->due - start) * 1e6, (c->sent - c->due) * 1e6, status, (end - c->due) * 1e6);
  c->busy = 0;
  c->idle_since = end;
  in_flight--;
  if (status == 0 || c->close_after) close_connection(c);
}

static void begin(connection_t *c) {
  c->written = c->have = c->need = 0;
  c->head_done = c->close_after = c->status = 0;
}

static int connect_now(connection_t *c) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int yes = 1;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (c->fd < 0) return -1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) return -1;
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
  c->reused = 0;
  return epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event);
}

static void fail(connection_t *c) {
  /* A server may close an idle connection just as it is used again: such a request is sent once more, as browsers do. */
  if (c->reused && c->have == 0) {
    close_connection(c);
    begin(c);
    if (connect_now(c) == 0) return;
  }
  finish(c, 0);
}

static void write_some(connection_t *c) {
  while (c->busy && c->written < c->request->length) {
    ssize_t n = send(c->fd, c->request->bytes + c->written, c->request->length - c->written, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
    if (n < 0) return fail(c);
    if (!c->sent) c->sent = now();
    c->written += n;
  }
}

/* Reads the head once it is whole: status, length of the body, whether the connection ends with it. */
static int parse_head(connection_t *c) {
  c->head[c->have] = 0;
  char *end = strstr(c->head, "\r\n\r\n");
  if (!end) return c->have < HEAD_BYTES;
  char *length = strcasestr(c->head, "\r\ncontent-length:");
  if (sscanf(c->head, "HTTP/1.%*d %d", &c->status) != 1 || !length || length > end) return 0;
  char *closes = strcasestr(c->head, "\r\nconnection: close");
  c->close_after = closes && closes < end;
  c->need = (end - c->head) + 4 + strtoul(length + 17, NULL, 10);
  c->head_done = 1;
  return 1;
}

static void read_some(connection_t *c) {
  static char rest[65536];
  while (c->fd >= 0) {
    char *to = c->head_done ? rest : c->head + c->have;
    ssize_t n = recv(c->fd, to, c->head_done ? sizeof rest : HEAD_BYTES - c->have, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0 || !c->busy) {
      c->busy ? fail(c) : close_connection(c);
      return;
    }
    c->have += n;
    if (!c->head_done && !parse_head(c)) return finish(c, 0);
    if (c->head_done && c->have >= c->need) finish(c, c->status);
  }
}

static connection_t *free_connection(void) {
  connection_t *spare = NULL;
  for (int i = 0; i < opened; i++) {
    connection_t *c = connections[i];
    if (c->busy) continue;
    if (c->fd >= 0) return c;
    spare = c;
  }
  if (spare || opened == MAX_CONNECTIONS) return spare;
  spare = connections[opened++] = calloc(1, sizeof *spare);
  if (!spare) die("calloc");
  spare->fd = -1;
  return spare;
}

static void send_request(const request_t *request, double due) {
  connection_t *c = free_connection();
  if (!c) exit((fprintf(stderr, "more than %d requests in flight\n", MAX_CONNECTIONS), 1));
  begin(c);
  c->request = request;
  c->due = due;
  c->sent = 0;
  c->busy = 1;
  in_flight++;
  if (c->fd < 0) {
    if (connect_now(c) < 0) finish(c, 0);
    return; /* written once it is connected */
  }
  c->reused = 1;
  write_some(c);
}

static void sweep(void) {
  double t = now();
  for (int i = 0; i < opened; i++) {
    connection_t *c = connections[i];
    if (c->busy && t - c->due > timeout_s) finish(c, 0);
    if (!c->busy && c->fd >= 0 && t - c->idle_since > IDLE_S) close_connection(c);
  }
}

int main(int argc, char **argv) {
  if (argc != 10) return fprintf(stderr, "usage: see the head of the source\n"), 2;
  port = atoi(argv[1]);
  size_t known = 0, sent = 0, count = strtoul(argv[7], NULL, 10);
  request_t *requests = read_requests(argv[2], &known);
  double rate = atof(argv[4]), seconds = atof(argv[5]);
  int clients = atoi(argv[6]);
  timeout_s = atof(argv[8]) / 1e3;
  srand48(atol(argv[9]));
  if (!(out = fopen(argv[3], "w"))) die(argv[3]);
  poll_fd = epoll_create1(0);
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct epoll_event events[256], event = {.events = EPOLLIN, .data.ptr = NULL};
  epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer, &event);
  start = now();
  double due = start, swept = start, t;
  while ((t = now()) < start + seconds || in_flight) {
    int open = t < start + seconds;
    if (rate == 0)
      for (; open && in_flight < clients && sent < count; sent++) send_request(&requests[sent % known], now());
    else
      for (; due <= t && due < start + seconds; sent++, due -= log(1 - drand48()) / rate)
        send_request(&requests[sent % known], due);
    if (rate == 0 && sent >= count && !in_flight) break;
    double wake = rate > 0 && due < start + seconds && due < t + 0.01 ? due : t + 0.01;
    struct itimerspec at = {.it_value = {(time_t)wake, (long)((wake - (time_t)wake) * 1e9)}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
    int n = epoll_wait(poll_fd, events, 256, -1);
    for (int i = 0; i < n; i++) {
      connection_t *c = events[i].data.ptr;
      uint64_t expired;
      if (!c) {
        if (read(timer, &expired, sizeof expired) < 0 && errno != EAGAIN) die("timer");
        continue;
      }
      if (c->fd >= 0 && events[i].events & EPOLLOUT) write_some(c);
      if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_some(c);
    }
    if (now() - swept > 0.01) sweep(), swept = now();
  }
  return fclose(out) ? 1 : 0;
}
