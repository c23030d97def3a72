"""What a loader does with samples: fetching, collating, pinning."""

from . import collate, fetch, pin_memory, worker

__all__ = ["collate", "fetch", "pin_memory", "worker"]
