"""Programs of C: what the kernel offers, one thing each."""

# ruff: noqa: E501 - a program's line is one line

from __future__ import annotations

from tests.checkpointed.program import C, Program, c

OPENMP = """
#include <omp.h>
int main(void) {
    unsigned long sum = 0;
    for (int i = 0; i < STEPS; i++) {
#pragma omp parallel for reduction(+ : sum)
        for (int k = 0; k < 200000; k++) sum += (unsigned long)k * i % 7;
        note(i); rest();
    }
    result(sum);
}
"""
PTHREADS = """
#include <pthread.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int next; static unsigned long sum;
static void *work(void *mine) {
    for (int i = 0; i < 8; i++) {
        pthread_mutex_lock(&lock);
        while (next % 4 != (long)mine) pthread_cond_wait(&turn, &lock);
        sum = sum * 31 % 99991 + next; note(next++); rest();
        pthread_cond_broadcast(&turn); pthread_mutex_unlock(&lock);
    }
    return NULL;
}
int main(void) {
    pthread_t team[4];
    for (long i = 0; i < 4; i++) pthread_create(team + i, NULL, work, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(team[i], NULL);
    result(sum);
}
"""
SHARED = """
int main(void) {
    int file = open("shared", O_RDWR | O_CREAT, 0600), n = 4096;
    must(ftruncate(file, n * sizeof(int)) == 0, "ftruncate");
    int *seen = mmap(NULL, n * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(seen != MAP_FAILED, "mmap");
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < n; k++) seen[k] = (seen[k] * 7 + i + k) % 1009;
        note(i); rest();
    }
    unsigned long sum = 0;
    for (int k = 0; k < n; k++) sum += seen[k];
    result(sum);
}
"""
BETWEEN = """
int main(void) {
    volatile int *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t other = fork();
    if (!other) for (int i = 0; ; i++) { while (seen[0] == i) usleep(1000); seen[1] = seen[1] * 3 % 1009 + seen[0]; seen[2] = i + 1; }
    for (int i = 0; i < STEPS; i++) { seen[0] = i + 1; while (seen[2] != i + 1) usleep(1000); note(i); rest(); }
    kill(other, SIGKILL); wait(NULL);
    result(seen[1]);
}
"""
INOTIFY = """
#include <sys/inotify.h>
int main(void) {
    mkdir("watched", 0700);
    int watch = inotify_init(); unsigned long sum = 0; char text[4096];
    must(inotify_add_watch(watch, "watched", IN_CLOSE_WRITE) > 0, "inotify_add_watch");
    for (int i = 0; i < STEPS; i++) {
        char name[40]; sprintf(name, "watched/%d", i);
        close(open(name, O_WRONLY | O_CREAT, 0600));
        must(read(watch, text, sizeof text) > 0, "read");
        sum = sum * 31 % 99991 + atoi(((struct inotify_event *)text)->name);
        note(i); rest();
    }
    result(sum);
}
"""
TIMERS = """
#include <sys/time.h>
#include <sys/timerfd.h>
static volatile int alarms;
static void count(int s) { alarms++; }
int main(void) {
    struct itimerspec each = {{0, 250000000}, {0, 250000000}};
    struct itimerval other = {{0, 100000}, {0, 100000}};
    int timer = timerfd_create(CLOCK_MONOTONIC, 0); unsigned long sum = 0;
    signal(SIGALRM, count); setitimer(ITIMER_REAL, &other, NULL);
    must(timerfd_settime(timer, 0, &each, NULL) == 0, "timerfd_settime");
    for (int i = 0; i < STEPS; i++) {
        uint64_t due; int before = alarms;
        while (read(timer, &due, 8) != 8) must(errno == EINTR, "read");
        while (alarms == before) pause();
        sum = sum * 31 % 99991 + i; note(i);
    }
    result(sum);
}
"""
POSIX_TIMER = """
static volatile int heard;
static void count(int s) { heard++; }
int main(void) {
    timer_t timer; unsigned long sum = 0;
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
    struct itimerspec each = {{0, 250000000}, {0, 250000000}};
    signal(SIGRTMIN + 1, count);
    must(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0, "timer_create");
    must(timer_settime(timer, 0, &each, NULL) == 0, "timer_settime");
    for (int i = 0; i < STEPS; i++) { int before = heard; while (heard == before) usleep(10000); sum = sum * 31 % 99991 + i; note(i); }
    result(sum);
}
"""
SIGNALFD = """
#include <sys/signalfd.h>
int main(void) {
    sigset_t set; unsigned long sum = 0; struct signalfd_siginfo seen;
    sigemptyset(&set); sigaddset(&set, SIGRTMIN + 2); sigprocmask(SIG_BLOCK, &set, NULL);
    int from = signalfd(-1, &set, 0);
    for (int i = 0; i < STEPS; i++) {
        union sigval value = {.sival_int = i * 3};
        sigqueue(getpid(), SIGRTMIN + 2, value);
        must(read(from, &seen, sizeof seen) == sizeof seen, "read");
        sum = sum * 31 % 99991 + seen.ssi_int; note(i); rest();
    }
    result(sum);
}
"""
EPOLL = """
#include <sys/epoll.h>
int main(void) {
    int ends[8][2], poll = epoll_create1(0); unsigned long sum = 0;
    for (int k = 0; k < 8; k++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = k};
        must(pipe(ends[k]) == 0, "pipe"); must(epoll_ctl(poll, EPOLL_CTL_ADD, ends[k][0], &event) == 0, "epoll_ctl");
    }
    for (int i = 0; i < STEPS; i++) {
        struct epoll_event seen; int value = i * 5;
        write(ends[i % 8][1], &value, sizeof value);
        must(epoll_wait(poll, &seen, 1, 5000) == 1, "epoll_wait");
        read(ends[seen.data.u32][0], &value, sizeof value);
        sum = sum * 31 % 99991 + value + seen.data.u32; note(i); rest();
    }
    result(sum);
}
"""
EVENTFD = """
#include <sys/eventfd.h>
int main(void) {
    int there = eventfd(0, 0), back = eventfd(0, 0); uint64_t n = 1, sum = 0;
    pid_t other = fork();
    if (!other) for (;;) { read(there, &n, 8); n = n * 3 % 1009 + 1; write(back, &n, 8); }
    for (int i = 0; i < STEPS; i++) {
        n = i + 1; write(there, &n, 8); must(read(back, &n, 8) == 8, "read");
        sum = sum * 31 % 99991 + n; note(i); rest();
    }
    kill(other, SIGKILL); wait(NULL);
    result(sum);
}
"""
URING = """
#include <liburing.h>
int main(void) {
    struct io_uring ring; unsigned long sum = 0; char text[64];
    must(io_uring_queue_init(8, &ring, 0) == 0, "io_uring_queue_init");
    int file = open("through", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < STEPS; i++) {
        struct io_uring_sqe *sqe; struct io_uring_cqe *cqe; int length = sprintf(text, "%06d", i * 7);
        for (int back = 0; back < 2; back++) {
            sqe = io_uring_get_sqe(&ring);
            if (back) io_uring_prep_read(sqe, file, text, 6, i * 6); else io_uring_prep_write(sqe, file, text, length, i * 6);
            io_uring_submit(&ring);
            must(io_uring_wait_cqe(&ring, &cqe) == 0 && cqe->res == 6, "io_uring");
            io_uring_cqe_seen(&ring, cqe);
            if (!back) memset(text, 0, sizeof text);
        }
        sum = sum * 31 % 99991 + atoi(text); note(i); rest();
    }
    result(sum);
}
"""
POSIX_SHM = """
int main(void) {
    char name[40]; sprintf(name, "/clearway-table-%lu", here());
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), n = 4096;
    must(file >= 0 && ftruncate(file, n * sizeof(int)) == 0, "shm_open");
    int *seen = mmap(NULL, n * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(seen != MAP_FAILED, "mmap");
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < n; k++) seen[k] = (seen[k] * 7 + i + k) % 1009;
        note(i); rest();
    }
    unsigned long sum = 0;
    for (int k = 0; k < n; k++) sum += seen[k];
    shm_unlink(name);
    result(sum);
}
"""
SYSV_SHM = """
#include <sys/shm.h>
int main(void) {
    int id = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
    must(id >= 0, "shmget");
    volatile int *seen = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    pid_t other = fork();
    if (!other) for (int i = 0; ; i++) { while (seen[0] == i) usleep(1000); seen[1] = seen[1] * 3 % 1009 + seen[0]; seen[2] = i + 1; }
    for (int i = 0; i < STEPS; i++) { seen[0] = i + 1; while (seen[2] != i + 1) usleep(1000); note(i); rest(); }
    kill(other, SIGKILL); wait(NULL);
    result(seen[1]);
}
"""
SYSV_MSG = """
#include <sys/msg.h>
struct word { long kind; int value; };
int main(void) {
    int queue = msgget(here(), IPC_CREAT | 0600); unsigned long sum = 0;
    must(queue >= 0, "msgget");
    for (int i = 0; i < STEPS; i++) {
        struct word word = {1 + i % 2, i * 3};
        must(msgsnd(queue, &word, sizeof(int), 0) == 0, "msgsnd");
        if (i % 2) for (int k = 2; k; k--) { must(msgrcv(queue, &word, sizeof(int), k, 0) > 0, "msgrcv"); sum = sum * 31 % 99991 + word.value; }
        note(i); rest();
    }
    msgctl(queue, IPC_RMID, NULL);
    result(sum);
}
"""
POSIX_MQ = """
#include <mqueue.h>
int main(void) {
    char name[40], text[64]; sprintf(name, "/clearway-table-%lu", here());
    struct mq_attr how = {.mq_maxmsg = 8, .mq_msgsize = 64}; unsigned long sum = 0;
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &how);
    must(queue != (mqd_t)-1, "mq_open");
    for (int i = 0; i < STEPS; i++) {
        sprintf(text, "%d", i * 3); must(mq_send(queue, text, 64, i % 3) == 0, "mq_send");
        if (i % 2) for (int k = 2; k; k--) { must(mq_receive(queue, text, 64, NULL) > 0, "mq_receive"); sum = sum * 31 % 99991 + atoi(text); }
        note(i); rest();
    }
    mq_unlink(name);
    result(sum);
}
"""
SEMAPHORES = """
#include <semaphore.h>
#include <sys/sem.h>
int main(void) {
    struct { sem_t go, done; int n, sum; } *both = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sem_init(&both->go, 1, 0); sem_init(&both->done, 1, 0);
    int set = semget(here(), 1, IPC_CREAT | 0600);
    struct sembuf up = {0, 1, 0}, down = {0, -1, 0};
    must(set >= 0, "semget");
    pid_t other = fork();
    if (!other) for (;;) { while (sem_wait(&both->go)) ; both->sum = both->sum * 31 % 99991 + both->n; sem_post(&both->done); }
    for (int i = 0; i < STEPS; i++) {
        both->n = i; must(semop(set, &up, 1) == 0, "semop"); sem_post(&both->go);
        while (sem_wait(&both->done)) ;
        note(i); rest();
        must(semop(set, &down, 1) == 0, "semop");
    }
    kill(other, SIGKILL); wait(NULL); semctl(set, 0, IPC_RMID);
    result(both->sum);
}
"""
HUGE = """
int main(void) {
    size_t size = 64 << 20, each = 2 << 20; unsigned long sum = 0;
    char *seen = aligned_alloc(each, size);
    madvise(seen, size, MADV_HUGEPAGE);
    memset(seen, 1, size);
    for (int i = 0; i < STEPS; i++) {
        for (size_t k = i; k < size; k += 4096) seen[k] = seen[k] * 7 + i;
        note(i); rest();
    }
    for (size_t k = 0; k < size; k++) sum += (unsigned char)seen[k];
    result(sum);
}
"""
MEMFD = """
int main(void) {
    int file = memfd_create("kept", 0); unsigned long sum = 0;
    for (int i = 0; i < STEPS; i++) {
        int value = i * 7, back = 0;
        must(pwrite(file, &value, sizeof value, i * sizeof value) == sizeof value, "pwrite");
        for (int k = 0; k <= i; k++) { must(pread(file, &back, sizeof back, k * sizeof back) == sizeof back, "pread"); sum = sum * 31 % 99991 + back; }
        note(i); rest();
    }
    result(sum);
}
"""
HEAP = """
int main(void) {
    unsigned long sum = 0; int **all = calloc(STEPS, sizeof *all);
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < 200; k++) { int *more = malloc(5000); more[7] = i + k; sum = sum * 31 % 99991 + more[7]; }
        note(i); rest();
    }
    result(sum);
}
"""
MPI = """
#include <mpi.h>
int main(int argc, char **argv) {
    int rank, size; unsigned long mine, sum = 0;
    MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < STEPS; i++) {
        mine = sum % 1009 + rank * i;
        MPI_Allreduce(&mine, &sum, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (!rank) note(i);
        rest();
    }
    if (!rank) result(sum);
    MPI_Finalize();
}
"""

PROGRAMS: list[Program] = [
    c("OpenMP", "A team of two threads", OPENMP, flags="-fopenmp"),
    c("threads of C", "Four threads that take turns by a mutex and a condition", PTHREADS, flags="-pthread"),
    c("file shared by mmap", "MAP_SHARED of a file, changed in place", SHARED),
    c("memory shared by two processes", "MAP_SHARED without a file", BETWEEN),
    c("heap that grows", "A megabyte of small pieces more at each step", HEAP),
    c("huge pages", "64 MB that asks for transparent huge pages", HUGE),
    c("inotify", "A program that watches a folder", INOTIFY),
    c("timerfd and setitimer", "Two kinds of timers at once", TIMERS),
    c("timer_create", "A timer that sends a signal", POSIX_TIMER),
    c("signalfd", "Signals that are read as a file", SIGNALFD),
    c("epoll", "Eight pipes that are waited for at once", EPOLL),
    c("eventfd", "Two processes that count each other's events", EVENTFD),
    c("io_uring", "Reads and writes by a ring that the kernel shares", URING, flags="-luring", needs=("/usr/include/liburing.h",)),
    c("memfd", "A file in memory", MEMFD),
    c("POSIX shared memory", "shm_open", POSIX_SHM),
    c("System V shared memory", "shmget, two processes", SYSV_SHM),
    c("System V messages", "msgget", SYSV_MSG),
    c("POSIX messages", "mq_open", POSIX_MQ),
    c("semaphores", "POSIX ones between two processes, and those of System V", SEMAPHORES),
    Program(
        "MPI on one node",
        "Two ranks of MPICH, with CLEARWAY_DMTCP_MPI=one-node",
        "mpiexec.mpich -n 2 ./program",
        {"program.c": C + MPI},
        "mpicc.mpich -O1 -w program.c -o program",
        needs=("mpicc.mpich", "mpiexec.mpich"),
        packages=("mpich",),
        env={"CLEARWAY_DMTCP_MPI": "one-node"},
    ),
]  # fmt: skip
