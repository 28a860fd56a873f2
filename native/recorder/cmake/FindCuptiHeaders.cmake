# Sets BUSFARE_CUPTI_INCLUDE_DIRS: where cupti.h and cuda.h are. Looked for in CUPTI_INCLUDE_DIR, in the Python
# packages nvidia-cuda-cupti and nvidia-cuda-runtime, and in a CUDA toolkit.
if(Python_EXECUTABLE)
  set(_python ${Python_EXECUTABLE})
else()
  find_package(Python3 COMPONENTS Interpreter QUIET)
  set(_python ${Python3_EXECUTABLE})
endif()

set(_hints ${CUPTI_INCLUDE_DIR})
if(_python)
  execute_process(
    COMMAND ${_python} -c
            "import pathlib, sys; print(';'.join(str(d) for p in sys.path for d in sorted(pathlib.Path(p or '.').glob('nvidia/*/include'), reverse=True)))"
    OUTPUT_VARIABLE _wheel_dirs
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET)
  list(APPEND _hints ${_wheel_dirs})
endif()
foreach(_toolkit $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
  list(APPEND _hints ${_toolkit}/extras/CUPTI/include ${_toolkit}/include)
endforeach()

find_path(BUSFARE_CUPTI_HEADERS cupti.h HINTS ${_hints} NO_DEFAULT_PATH)
find_path(BUSFARE_CUDA_HEADERS cuda_runtime_api.h HINTS ${BUSFARE_CUPTI_HEADERS} ${_hints} NO_DEFAULT_PATH)
find_path(BUSFARE_CUDA_CRT_HEADERS crt/host_defines.h HINTS ${BUSFARE_CUDA_HEADERS} ${_hints} NO_DEFAULT_PATH)
if(NOT BUSFARE_CUPTI_HEADERS OR NOT BUSFARE_CUDA_HEADERS OR NOT BUSFARE_CUDA_CRT_HEADERS)
  message(FATAL_ERROR "The recorder needs the headers of CUPTI and CUDA: "
                      "pip install nvidia-cuda-cupti nvidia-cuda-runtime nvidia-cuda-crt, or set CUPTI_INCLUDE_DIR")
endif()
set(BUSFARE_CUPTI_INCLUDE_DIRS ${BUSFARE_CUPTI_HEADERS} ${BUSFARE_CUDA_HEADERS} ${BUSFARE_CUDA_CRT_HEADERS})
list(REMOVE_DUPLICATES BUSFARE_CUPTI_INCLUDE_DIRS)
