#pragma once

#include <mpi.h>

namespace funnel {

/// While it lives, MPI calls on this communicator return their errors instead of ending the job.
class ErrorsReturn {
  public:
    explicit ErrorsReturn(MPI_Comm comm) : comm_(comm) { MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN); }
    ~ErrorsReturn() { MPI_Comm_set_errhandler(comm_, MPI_ERRORS_ARE_FATAL); }
    ErrorsReturn(const ErrorsReturn&) = delete;
    ErrorsReturn& operator=(const ErrorsReturn&) = delete;

  private:
    MPI_Comm comm_;
};

}  // namespace funnel
