/*
 * Slurm 26.05's API as pyslurm 25.11 expects it. Stands in front of the real header in the include path.
 */
#ifndef CLEARWAY_TESTS_SLURM_H
#define CLEARWAY_TESTS_SLURM_H

/* Job ids as plain numbers, where 26.05 takes a slurm_step_id_t. */
#define SLURM_BACKWARD_COMPAT

#include_next <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>

/* Renamed, or gone: the second is only looked up in a table of errors. */
#define slurm_free_ctl_conf slurm_free_conf
#define ESLURM_ERROR_ON_DESC_TO_RECORD_COPY ESLURM_MAX_JOB_COUNT

/* 26.05 returns memory of its own allocator, and pyslurm calls free() on it, which aborts: hand out a plain copy. */
extern void slurm_xfree_ptr(void *ptr);

static inline char *clearway_create_reservation(resv_desc_msg_t *description)
{
	char *name = slurm_create_reservation(description);
	char *copy = name ? strdup(name) : NULL;

	slurm_xfree_ptr(name);
	return copy;
}
#define slurm_create_reservation clearway_create_reservation

#endif
