! Ranks that communicate by MPI's bindings for Fortran, those of `use mpi`, or with F08 those of `use mpi_f08`.
#ifdef F08
#define COMMUNICATOR type(MPI_Comm)
#define REQUEST type(MPI_Request)
#else
#define COMMUNICATOR integer
#define REQUEST integer
#endif

program ranks
#ifdef F08
  use mpi_f08
  implicit none
  type(MPI_Status) :: seen
#else
  use mpi
  implicit none
  integer :: seen(MPI_STATUS_SIZE)
#endif
  COMMUNICATOR :: half
  REQUEST :: requests(2), one
  integer :: rank, size, error, right, left, step, place
  integer :: few(4), counts(8), places(8), table(64)
  double precision :: sent(1000), got(1000), total(1)

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size, error)
  right = mod(rank + 1, size)
  left = mod(rank + size - 1, size)
  sent = rank
  few = rank
  table = 0
  do step = 1, 10
    call MPI_Irecv(got, 1000, MPI_DOUBLE_PRECISION, left, 7, MPI_COMM_WORLD, requests(1), error)
    call MPI_Isend(sent, 500, MPI_DOUBLE_PRECISION, right, 7, MPI_COMM_WORLD, requests(2), error)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
    if (got(500) /= left) call MPI_Abort(MPI_COMM_WORLD, 1, error)
    call MPI_Allreduce(sent, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  end do
  call MPI_Irecv(few, 4, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, one, error)
  call MPI_Send(table, 3, MPI_INTEGER, right, 5, MPI_COMM_WORLD, error)
  call MPI_Wait(one, seen, error)
#ifdef F08
  if (seen%MPI_SOURCE /= left .or. seen%MPI_TAG /= 5) call MPI_Abort(MPI_COMM_WORLD, 2, error)
#else
  if (seen(MPI_SOURCE) /= left .or. seen(MPI_TAG) /= 5) call MPI_Abort(MPI_COMM_WORLD, 2, error)
#endif
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half, error)
  call MPI_Bcast(few, 3, MPI_INTEGER, 0, half, error)
  counts = 2
  places = [(2 * place, place = 0, 7)]
  call MPI_Alltoallv(MPI_IN_PLACE, counts, places, MPI_INTEGER, table, counts, places, MPI_INTEGER, half, error)
  call MPI_Comm_free(half, error)
  call MPI_Finalize(error)
end program ranks
