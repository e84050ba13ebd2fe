// loadgen: one-thread epoll HTTP/1.1 load client, closed- or open-loop (Poisson).
//   cc -O2 -o loadgen loadgen.c -lm
//   ./loadgen -p PORT [-u /path] [-b bodies.txt] [-d secs] [-w warmup] [-t timeout_ms]
//             -c N            closed loop, N keep-alive connections, one request each in flight
//             -r RATE [-c N]  open loop, Poisson arrivals; N = most connections (default 1024)
//             [-o]            open all N connections first, and keep them: the same count at any rate
//             [-l LIMIT_MS]   count answers within this time ("in_limit", goodput = in_limit / secs)
//             [-k FRAC]       hang up after 1 ms on this share of requests (disconnect test)
//             [-H 'Name: value']  extra header        [-s SEED]
// Open loop: latency counts from the *scheduled* arrival (no coordinated omission). A request
// that finds all N connections busy waits in the client and its wait counts.  -b: one JSON body a
// line, drawn at random.  Refusals (answers that are not 200) have percentiles of their own, ref_p50 and
// ref_p99.  "open" is the number of connections open at the end of -o.  Prints one JSON line.  Talks to 127.0.0.1 only.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>

typedef struct { int fd, st; double t0, tsend; char *buf; int n, want, close_, code, kill_; const char *out; int outn, outo; } Conn; // st: 0 idle-closed 1 idle-open 2 busy
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static uint64_t S = 88172645463325252ull;
static double rnd(void) { S ^= S << 13; S ^= S >> 7; S ^= S << 17; return (S >> 11) * (1.0 / 9007199254740992.0); }
static int cmpf(const void *a, const void *b) { float x = *(float *)a, y = *(float *)b; return (x > y) - (x < y); }

static int port = 8000, maxc = 0, ep, nreq; static double rate = 0, dur = 10, warm = 2, tmo = 30, killf = 0;
static char **req; static int *reqn; static Conn *C;
static float *lat, *rlat; static long nlat, clat, nrlat, crlat, in_limit, opened; static double limit_ms = 0; static int preopen; static long codes[6], ok, other, timeouts, conn_err, reset_, killed, sent_m, late_done;
static double T0, TW, TE; static int *idle, nidle; static double *q; static long qh, qt, qcap, maxq, maxbusy; static int nbusy;
static char firsterr[200];
#define BUF 65536

static void drop(Conn *c) { if (c->fd >= 0) close(c->fd); c->fd = -1; c->n = 0; c->want = -1; }
static void freec(Conn *c) { if (c->st == 2) nbusy--; c->st = 1; idle[nidle++] = c - C; }
static void flush_(Conn *c) {
  while (c->outo < c->outn) {
    int k = send(c->fd, c->out + c->outo, c->outn - c->outo, MSG_NOSIGNAL);
    if (k < 0) return; // EAGAIN or still connecting: EPOLLOUT will come
    c->outo += k;
  }
}
static int dial(Conn *c) {
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (c->fd < 0) return -1;
  int one = 1; setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(c->fd, (void *)&a, sizeof a) < 0 && errno != EINPROGRESS) { drop(c); return -1; }
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = c - C};
  epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
  return 0;
}
static void start(Conn *c, double sched) {
  c->t0 = sched; c->tsend = now(); c->n = 0; c->want = -1; c->code = 0; c->close_ = 0; c->st = 2; c->kill_ = killf > 0 && rnd() < killf;
  if (++nbusy > maxbusy) maxbusy = nbusy;
  int i = nreq > 1 ? (int)(rnd() * nreq) : 0; c->out = req[i]; c->outn = reqn[i]; c->outo = 0;
  if (sched >= TW && sched < TE) sent_m++;
  if (c->fd < 0 && dial(c) < 0) { if (sched >= TW && sched < TE) conn_err++; freec(c); return; }
  flush_(c);
}
static void fail(Conn *c, long *ctr) { if (c->t0 >= TW && c->t0 < TE) (*ctr)++; drop(c); freec(c); }
static void done(Conn *c) {
  double t = now();
  if (c->t0 >= TW && c->t0 < TE) {
    int k = c->code / 100; if (k < 1 || k > 5) k = 0; codes[k]++;
    if (c->code == 200) { ok++; if (t <= TE) late_done++; if (nlat == clat) lat = realloc(lat, sizeof(float) * (clat = clat ? clat * 2 : 1 << 16)); lat[nlat++] = (t - c->t0) * 1e3; if (limit_ms <= 0 || lat[nlat - 1] <= limit_ms) in_limit++; }
    else { other++; if (nrlat == crlat) rlat = realloc(rlat, sizeof(float) * (crlat = crlat ? crlat * 2 : 1 << 16)); rlat[nrlat++] = (t - c->t0) * 1e3; if (!firsterr[0]) { int j = 0; for (int i = 0; i < c->n && j < 150; i++) { unsigned char x = c->buf[i]; if (x >= 32 && x < 127 && x != '"' && x != '\\') firsterr[j++] = x; else firsterr[j++] = ' '; } } }
  }
  if (c->close_) drop(c); else { c->n = 0; c->want = -1; }
  freec(c);
}
static void readable(Conn *c) {
  for (;;) {
    if (c->n >= BUF - 1) { fail(c, &reset_); return; }
    int k = recv(c->fd, c->buf + c->n, BUF - 1 - c->n, 0);
    if (k < 0) { if (errno == EAGAIN) return; if (c->st == 2) fail(c, &reset_); else drop(c); return; }
    if (k == 0) { if (c->st == 2) fail(c, &reset_); else drop(c); return; }
    if (c->st != 2) continue;
    c->n += k; c->buf[c->n] = 0;
    if (c->want < 0) {
      char *h = strstr(c->buf, "\r\n\r\n"); if (!h) continue;
      c->code = atoi(c->buf + 9); *h = 0;
      char *p = strcasestr(c->buf, "\r\ncontent-length:");
      c->close_ = strcasestr(c->buf, "\r\nconnection: close") != NULL;
      if (p) c->want = (h - c->buf) + 4 + atoi(p + 17); else if (strcasestr(c->buf, "chunked")) c->want = -2 - (int)(h - c->buf); else c->want = (h - c->buf) + 4;
      *h = '\r';
    }
    if (c->want <= -2) { if (c->n >= 5 && !memcmp(c->buf + c->n - 5, "0\r\n\r\n", 5)) { done(c); return; } continue; }
    if (c->want >= 0 && c->n >= c->want) { done(c); return; }
  }
}
int main(int argc, char **argv) {
  int o; char *url = "/", *bf = NULL, *xh = "";
  while ((o = getopt(argc, argv, "p:u:b:d:w:t:c:r:k:H:s:l:o")) > 0) switch (o) {
    case 'p': port = atoi(optarg); break; case 'u': url = optarg; break; case 'b': bf = optarg; break; case 'd': dur = atof(optarg); break;
    case 'w': warm = atof(optarg); break; case 't': tmo = atof(optarg) / 1e3; break; case 'c': maxc = atoi(optarg); break; case 'r': rate = atof(optarg); break;
    case 'l': limit_ms = atof(optarg); break; case 'o': preopen = 1; break; case 'k': killf = atof(optarg); break; case 'H': asprintf(&xh, "%s\r\n", optarg); break; case 's': S ^= strtoull(optarg, 0, 10) * 0x9E3779B97F4A7C15ull; break; default: return 2; }
  signal(SIGPIPE, SIG_IGN);
  struct rlimit rl = {65536, 65536}; setrlimit(RLIMIT_NOFILE, &rl);
  if (!maxc) maxc = rate > 0 ? 1024 : 32;
  char *line = NULL; size_t cap = 0; FILE *f = bf ? fopen(bf, "r") : NULL; int rc = 0;
  if (bf && !f) { perror(bf); return 2; }
  for (;;) {
    const char *b = "{\"x\":[1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.5]}"; ssize_t n;
    if (f) { if ((n = getline(&line, &cap, f)) < 0) break; while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0; if (!n) continue; b = line; }
    if (nreq == rc) { rc = rc ? rc * 2 : 16; req = realloc(req, rc * sizeof *req); reqn = realloc(reqn, rc * sizeof *reqn); }
    reqn[nreq] = asprintf(&req[nreq], "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n%s", url, port, xh, strlen(b), b); nreq++;
    if (!f) break;
  }
  ep = epoll_create1(0); C = calloc(maxc, sizeof *C); idle = calloc(maxc + 8, sizeof *idle);
  for (int i = maxc - 1; i >= 0; i--) { C[i].fd = -1; C[i].buf = malloc(BUF); C[i].want = -1; C[i].st = 1; idle[nidle++] = i; }
  if (preopen) { // a burst longer than the listen backlog costs SYN retransmits of 1 s: open in steps
    for (int i = 0; i < maxc; i++) {
      if (dial(&C[i]) < 0) continue;
      struct pollfd pf = {.fd = C[i].fd, .events = POLLOUT}; int er = 0; socklen_t el = sizeof er;
      if (poll(&pf, 1, 3000) == 1 && !getsockopt(C[i].fd, SOL_SOCKET, SO_ERROR, &er, &el) && !er) opened++; else drop(&C[i]);
    }
  }
  int tf = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK); struct epoll_event te = {.events = EPOLLIN, .data.u32 = 0xffffffff}; epoll_ctl(ep, EPOLL_CTL_ADD, tf, &te);
  T0 = now(); TW = T0 + warm; TE = TW + dur; double next = T0, scan = T0 + 0.05; qcap = 1 << 20; q = malloc(qcap * sizeof *q);
  struct epoll_event ev[512]; double drain = TE + tmo;
  for (;;) {
    double t = now();
    if (t >= TE && (nbusy == 0 && qh == qt)) break;
    if (t >= drain) break;
    if (rate > 0) {
      while (next <= t && next < TE) { if (qt - qh < qcap) q[qt++ % qcap] = next; next += -log(1 - rnd()) / rate; }
      if (qt - qh > maxq) maxq = qt - qh;
      while (qh < qt && nidle) start(&C[idle[--nidle]], q[qh++ % qcap]);
    } else if (t < TE) { int k = nidle; while (k-- > 0 && nidle) start(&C[idle[--nidle]], t); }
    if (t >= scan) { // timeouts and deliberate hang-ups
      for (int i = 0; i < maxc; i++) if (C[i].st == 2) { if (C[i].kill_ && t - C[i].tsend > 0.001) fail(&C[i], &killed); else if (t - C[i].t0 > tmo) fail(&C[i], &timeouts); }
      while (qh < qt && t - q[qh % qcap] > tmo) { if (q[qh % qcap] >= TW && q[qh % qcap] < TE) { timeouts++; sent_m++; } qh++; }
      scan = t + (killf > 0 ? 0.001 : 0.02);
    }
    double wake = scan; if (rate > 0 && next < TE && next < wake) wake = next;
    double d = wake - now(); if (d < 1e-6) d = 1e-6;
    struct itimerspec it = {.it_value = {(time_t)d, (long)((d - (time_t)d) * 1e9)}}; timerfd_settime(tf, 0, &it, NULL);
    int n = epoll_wait(ep, ev, 512, 100);
    for (int i = 0; i < n; i++) {
      if (ev[i].data.u32 == 0xffffffff) { uint64_t x; if (read(tf, &x, 8) < 0) {} continue; }
      Conn *c = &C[ev[i].data.u32]; if (c->fd < 0) continue;
      if (ev[i].events & EPOLLERR) { if (c->st == 2) fail(c, &conn_err); else drop(c); continue; }
      if ((ev[i].events & EPOLLOUT) && c->st == 2) flush_(c);
      if (ev[i].events & (EPOLLIN | EPOLLHUP)) readable(c);
    }
  }
  long lost = 0; for (int i = 0; i < maxc; i++) if (C[i].st == 2 && C[i].t0 >= TW && C[i].t0 < TE) lost++;
  qsort(lat, nlat, sizeof *lat, cmpf); qsort(rlat, nrlat, sizeof *rlat, cmpf);
#define P(x) (nlat ? lat[(long)((nlat - 1) * (x))] : -1.0)
#define R(x) (nrlat ? rlat[(long)((nrlat - 1) * (x))] : -1.0)
  struct rusage ru; getrusage(RUSAGE_SELF, &ru); double cpu = ru.ru_utime.tv_sec + ru.ru_stime.tv_sec + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1e-6;
  double mean = 0; for (long i = 0; i < nlat; i++) mean += lat[i]; if (nlat) mean /= nlat;
  printf("{\"rate\":%.0f,\"conns\":%d,\"secs\":%.1f,\"sent\":%ld,\"ok\":%ld,\"rps\":%.1f,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.2f,\"mean\":%.2f,\"c4xx\":%ld,\"c5xx\":%ld,\"other\":%ld,\"timeouts\":%ld,\"conn_err\":%ld,\"reset\":%ld,\"killed\":%ld,\"refused\":%ld,\"ref_p50\":%.2f,\"ref_p99\":%.2f,\"in_limit\":%ld,\"open\":%ld,\"lost\":%ld,\"maxbusy\":%ld,\"maxq\":%ld,\"client_cpu\":%.2f,\"err\":\"%s\"}\n",
    rate, maxc, dur, sent_m, ok, late_done / dur, P(.5), P(.9), P(.99), P(.999), P(1), mean, codes[4], codes[5], other - codes[4] - codes[5], timeouts, conn_err, reset_, killed, nrlat, R(.5), R(.99), in_limit, opened, lost, maxbusy, maxq, cpu / (now() - T0), firsterr);
  return 0;
}
