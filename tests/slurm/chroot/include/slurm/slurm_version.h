/*
 * pyslurm 25.11 reads this file as text and refuses any version but its own. In front of Slurm 26.05's own header
 * this one states the version that pyslurm asks for; everything else comes from the real header behind it.
 */
#include_next <slurm/slurm_version.h>
#undef SLURM_VERSION_NUMBER
#define SLURM_VERSION_NUMBER 0x190b00
