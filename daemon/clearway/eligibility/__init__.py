"""Which jobs may be preempted and who may ask for it; what earlier decisions already claim. Pure."""
