"""Communication of many kinds between ranks; for tests of the recorder."""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size
half = comm.Split(rank % 2, rank)
sent, received = np.arange(64, dtype=float), np.zeros(64)
for _ in range(int(sys.argv[1])):
    sum(i * i for i in range(20000 * (rank + 1)))
    if rank == 0:
        comm.Send(sent, 1, 7)
    elif rank == 1:
        comm.Recv(received, 0, 7)
    comm.Allreduce(sent, received)
    half.bcast({"a": rank}, 0)
    obj = [rank]
    assert comm.allreduce(rank) == sum(range(size))
    assert comm.allgather(obj) == [[other] for other in range(size)]
    assert comm.scatter([b"x" * 1000] * size if rank == 0 else None, root=0) == b"x" * 1000
    assert comm.sendrecv(obj, right, 3, None, left, 3) == [left]
    comm.barrier()
    if rank == 0:
        comm.send(obj=obj, dest=right, tag=4)
    elif rank == 1:
        assert comm.recv(source=MPI.ANY_SOURCE, tag=4) == [left]
if "more" in sys.argv:
    comm.Sendrecv_replace(sent, right, 5, left, 5)
    assert sent[0] == 0.0
    comm.send(obj=rank, dest=right, tag=6)
    comm.probe(left, 6)
    assert comm.recv(None, left, 6) == left
    requests = [comm.Irecv(received, MPI.ANY_SOURCE, 9), comm.Isend(sent[:32].copy(), right, 9)]
    MPI.Request.Waitall(requests)
ring = comm.Create_cart([size], periods=[True])
source, dest = ring.Shift(0, 1)
ring.Sendrecv(sent, dest, 0, received, source, 0)
if "abort" in sys.argv and rank == 1:
    raise ValueError("planned")
comm.gather(rank, 0)
