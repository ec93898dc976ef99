/* Holds a program that DMTCP has just saved, and mends its heap after a restart, by DMTCP's own interface for plugins:
 * dmtcp.sh compiles and loads it.
 *
 * Of all that runs in a process only DMTCP's own thread comes here; the program's threads still stand where they were
 * saved. They stay there as long as there is a file `hold` in the folder of images. So what is on disk is what is in the
 * image, and nothing is done twice. Every signal is blocked in all threads by DMTCP itself: no handler of the program's
 * runs. SIGTERM, with which Slurm ends a job that it requeues, ends the process at once. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dmtcp.h"

/* A restored process has the break (the end of the heap) of dmtcp_restart's, at random. Where that is above the one that the
 * C library remembers, the kernel answers the next request for memory as if it had been granted, and the program dies of
 * memory that is not there. So the library learns the kernel's. Where it is below, requests fail, and memory is mapped. */
static void mend_break(void)
{
    char *end = (char *)syscall(SYS_brk, 0);

    if (end > (char *)sbrk(0) && brk(end) != 0) write(2, "clearway: the heap cannot be mended\n", 36);
}

static void hook(DmtcpEvent_t event, DmtcpEventData_t *data)
{
    static const struct timespec moment = {.tv_nsec = 50000000};
    char hold[4096];
    sigset_t term;

    (void)data;
    if (event == DMTCP_EVENT_RESTART) mend_break();
    if (event != DMTCP_EVENT_RESUME) return;
    snprintf(hold, sizeof hold, "%s/hold", dmtcp_get_ckpt_dir());
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    while (access(hold, F_OK) == 0)
        if (sigtimedwait(&term, NULL, &moment) == SIGTERM) _exit(128 + SIGTERM);
}

static DmtcpPluginDescriptor_t hold_plugin = {
    .pluginApiVersion = DMTCP_PLUGIN_API_VERSION,
    .dmtcpVersion = DMTCP_PACKAGE_VERSION,
    .pluginName = "clearway-hold",
    .authorName = "Clearway",
    .authorEmail = "",
    .description = "holds a program that was saved",
    .event_hook = hook,
};

DMTCP_DECL_PLUGIN(hold_plugin);
