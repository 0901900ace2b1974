#include <mpi.h>
#include <stdlib.h>
#include <stdio.h>
/* Ring of blocking and nonblocking messages, sums, and a split communicator. */
int main(int argc, char **argv) {
  int rank, size, steps = argc > 1 ? atoi(argv[1]) : 5;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  double x[64], sum[64], y[64];
  for (int i = 0; i < 64; i++) x[i] = rank + i;
  for (int s = 0; s < steps; s++) {
    volatile double work = 0;
    for (int i = 0; i < 100000 * (1 + rank); i++) work += i * 0.5;
    if (rank == 0) { MPI_Send(x, 64, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
    } else if (rank == 1) MPI_Recv(y, 64, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Request r[2];
    MPI_Irecv(y, 64, MPI_DOUBLE, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &r[0]);
    MPI_Isend(x, 32, MPI_DOUBLE, (rank + 1) % size, 9, MPI_COMM_WORLD, &r[1]);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    MPI_Allreduce(x, sum, 64, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(x, 16, MPI_DOUBLE, 0, half);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Comm_free(&half);
  MPI_Finalize();
  return 0;
}
