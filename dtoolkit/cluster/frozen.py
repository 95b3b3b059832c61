"""Imported last by the fork server: what it holds is left alone by its workers' collectors.

A garbage collection writes into every object that it looks at, so that each forked worker would
soon have a copy of its own of all modules that it shares with the fork server: some 80 MB a worker.
Frozen objects are not looked at.
"""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
