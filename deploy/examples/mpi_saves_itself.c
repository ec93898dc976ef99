/* An MPI program that saves itself: every rank gets the signal, all agree on one step, and one file says which it was.
 *
 *     mpicc -o mpi_saves_itself mpi_saves_itself.c
 *     exec clearway-run --checkpoint-file state -- srun --mpi=pmi2 ./mpi_saves_itself STEPS state result
 *
 * Each rank writes state.STEP.RANK. When all of them are on the disk, rank 0 writes `state`, which names the step: first
 * under another name, then renamed. So `state` always names a step that all ranks have saved, however a save ends. A
 * pause in mid-save is no danger, and files of a step that `state` does not name are never read.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t asked = 0;
static int rank, ranks;

static void on_signal(int number) {
    (void)number;
    asked = 1;
}

static void fail(const char *what) {
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void put(const char *name, const void *data, size_t size) { /* on the disk when it returns, or not at all */
    char other[4096];
    snprintf(other, sizeof other, "%s.new", name);
    FILE *file = fopen(other, "w");
    if (!file || fwrite(data, 1, size, file) != size || fflush(file) || fsync(fileno(file)) || fclose(file))
        fail(other);
    if (rename(other, name)) fail(name);
}

static void save(const char *state, long step, unsigned long token, long *saved) {
    char name[4000], line[32];
    snprintf(name, sizeof name, "%s.%ld.%d", state, step, rank);
    put(name, &token, sizeof token);
    MPI_Barrier(MPI_COMM_WORLD); /* all ranks' files are there */
    if (rank == 0) put(state, line, (size_t)snprintf(line, sizeof line, "%ld %d\n", step, ranks));
    MPI_Barrier(MPI_COMM_WORLD); /* and are named: now those of the save before may go */
    if (*saved >= 0 && *saved != step) {
        snprintf(name, sizeof name, "%s.%ld.%d", state, *saved, rank);
        unlink(name);
    }
    *saved = step;
}

static long load(const char *state, unsigned long *token) { /* the step to go on from; -1 where nothing was saved */
    long header[2] = {-1, 0};
    if (rank == 0) {
        FILE *file = fopen(state, "r");
        if (file && fscanf(file, "%ld %ld", &header[0], &header[1]) != 2) fail(state);
        if (file) fclose(file);
    }
    MPI_Bcast(header, 2, MPI_LONG, 0, MPI_COMM_WORLD); /* rank 0 alone reads it: all must agree */
    if (header[0] < 0) return -1;
    if (header[1] != ranks) fail("saved with another number of ranks");
    char name[4000];
    snprintf(name, sizeof name, "%s.%ld.%d", state, header[0], rank);
    FILE *file = fopen(name, "r");
    if (!file || fread(token, sizeof *token, 1, file) != 1) fail(name);
    fclose(file);
    return header[0];
}

int main(int count, char **words) {
    signal(SIGUSR1, on_signal); /* before MPI_Init: a signal without a handler ends the job */
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count < 4 || ranks < 2) fail("mpi_saves_itself STEPS STATE RESULT [HURRY], with two ranks or more");
    long steps = atol(words[1]);
    unsigned long token = 1;
    long saved = load(words[2], &token), step = saved < 0 ? 0 : saved;
    if (rank == 0) fprintf(stderr, "%d ranks, from step %ld\n", ranks, step);
    for (; step < steps; step++) {
        /* The signal reaches each rank at another moment: all save as soon as one has been asked, at the same step. */
        int mine = asked, any = 0;
        MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (any) {
            asked = 0;
            save(words[2], step, token, &saved);
        }
        int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks; /* the work: a token goes round */
        if (rank == 0) {
            token = token * 31 + (unsigned long)step;
            MPI_Send(&token, 1, MPI_UNSIGNED_LONG, next, 0, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_UNSIGNED_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_UNSIGNED_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token += (unsigned long)rank * (unsigned long)step;
            MPI_Send(&token, 1, MPI_UNSIGNED_LONG, next, 0, MPI_COMM_WORLD);
        }
        if (count < 5 || access(words[4], F_OK)) usleep(500000); /* a real program computes here */
    }
    if (rank == 0) {
        char line[32];
        put(words[3], line, (size_t)snprintf(line, sizeof line, "%lu\n", token));
    }
    MPI_Finalize();
    return 0;
}
