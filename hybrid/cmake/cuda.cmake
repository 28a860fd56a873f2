# Finds CUDA: an installed toolkit, or the compiler and libraries of NVIDIA's Python wheels (nvidia-cuda-nvcc, -crt,
# -cccl, -nvvm, nvidia-cuda-runtime, nvidia-cufft), whose folder HYBRID_CUDA_WHEELS names (…/site-packages/nvidia/cu13).
# Sets HYBRID_WITH_CUDA and HYBRID_CUDA_LIBRARIES, and hybrid_cuda_objects(out file.cu …).
#
# CMAKE_CUDA_ARCHITECTURES, where it is not given: 70 (V100), 80 (A100), 90 (H100, H200), 100 (B200) and those of the GPUs
# in this machine, as far as this nvcc compiles for them (CUDA 13 does not for 70).
set(HYBRID_CUDA_WHEELS "" CACHE PATH "Folder of CUDA wheels to use instead of a toolkit")
set(HYBRID_WITH_CUDA OFF)
set(HYBRID_CUDA_LIBRARIES "")
set(CMAKE_CUDA_STANDARD 20)

macro(hybrid_choose_architectures nvcc)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    execute_process(COMMAND ${nvcc} --list-gpu-arch OUTPUT_VARIABLE HYBRID_OFFERED)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE HYBRID_PRESENT ERROR_QUIET RESULT_VARIABLE HYBRID_NO_GPU)
    set(HYBRID_WANTED 70 80 90 100)
    if(HYBRID_NO_GPU EQUAL 0)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]" HYBRID_PRESENT "${HYBRID_PRESENT}")
      string(REPLACE "." "" HYBRID_PRESENT "${HYBRID_PRESENT}")
      list(APPEND HYBRID_WANTED ${HYBRID_PRESENT})
      list(REMOVE_DUPLICATES HYBRID_WANTED)
    endif()
    foreach(architecture IN LISTS HYBRID_WANTED)
      if(HYBRID_OFFERED MATCHES "compute_${architecture}\n")
        list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture})
      endif()
    endforeach()
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      message(FATAL_ERROR "${nvcc} compiles for none of ${HYBRID_WANTED}; give -DCMAKE_CUDA_ARCHITECTURES")
    endif()
  endif()
  message(STATUS "CUDA architectures: ${CMAKE_CUDA_ARCHITECTURES}")
endmacro()

if(HYBRID_CUDA AND HYBRID_CUDA_WHEELS)
  # CMake knows nvcc only inside a toolkit's layout, so the wheels' nvcc runs as a command of its own.
  file(GLOB HYBRID_CUDART ${HYBRID_CUDA_WHEELS}/lib/libcudart.so.*)
  file(GLOB HYBRID_CUFFT ${HYBRID_CUDA_WHEELS}/lib/libcufft.so.*)
  if(NOT HYBRID_CUDART OR NOT HYBRID_CUFFT)
    message(FATAL_ERROR "No libcudart or libcufft under ${HYBRID_CUDA_WHEELS}/lib")
  endif()
  set(HYBRID_CUDA_LIBRARIES ${HYBRID_CUDART} ${HYBRID_CUFFT} -Wl,-rpath-link,${HYBRID_CUDA_WHEELS}/lib)
  set(HYBRID_WITH_CUDA ON)
  hybrid_choose_architectures(${HYBRID_CUDA_WHEELS}/bin/nvcc)
elseif(HYBRID_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    hybrid_choose_architectures(${CMAKE_CUDA_COMPILER})
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(HYBRID_CUDA_LIBRARIES CUDA::cudart CUDA::cufft)
    set(HYBRID_WITH_CUDA ON)
  else()
    message(STATUS "No nvcc: the CUDA device is left out, the stand-in takes its place")
  endif()
endif()

# The sources to give a target for these .cu files: the files themselves, or objects that the wheels' nvcc makes.
function(hybrid_cuda_objects out)
  if(NOT HYBRID_CUDA_WHEELS)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(targets "")
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    list(APPEND targets -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  set(objects "")
  foreach(source IN LISTS ARGN)
    string(REPLACE "/" "_" name ${source})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${HYBRID_CUDA_WHEELS}/bin/nvcc -std=c++20 -O3 ${targets} --expt-relaxed-constexpr
              -I${PROJECT_SOURCE_DIR} -I${HYBRID_CUDA_WHEELS}/include -I${HYBRID_CUDA_WHEELS}/include/cccl
              -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "Building CUDA object ${source} with the wheels' nvcc")
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
