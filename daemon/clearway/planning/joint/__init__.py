"""Several urgent jobs planned together, and the mixed-integer program for them and for one."""
