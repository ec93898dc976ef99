"""What Clearway is studied with: recorded workloads under other schedulers, the papers' experiments, a site again.

It uses the daemon; the daemon never uses it. Its commands join ``clearway`` as ``clearway lab``.
"""
