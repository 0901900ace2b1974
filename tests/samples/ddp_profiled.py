"""A small network trained in data-parallel under the profiler; for tests of its traces."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 32))
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for _ in range(4):
        model(torch.randn(8, 64)).sum().backward()
    dist.broadcast(torch.zeros(10, dtype=torch.float64), 0)
name = f"rank{rank}.json" + (".gz" if rank else "")
profiler.export_chrome_trace(str(Path(sys.argv[1]) / name))
dist.destroy_process_group()
