# Finds CUDA: an installed toolkit, or the compiler and libraries of NVIDIA's Python wheels (nvidia-cuda-nvcc, -crt,
# -cccl, -nvvm, nvidia-cuda-runtime, nvidia-cufft), whose folder HYBRID_CUDA_WHEELS names (…/site-packages/nvidia/cu13).
# Sets HYBRID_WITH_CUDA and HYBRID_CUDA_LIBRARIES, and hybrid_cuda_objects(out file.cu …).
set(HYBRID_CUDA_WHEELS "" CACHE PATH "Folder of CUDA wheels to use instead of a toolkit")
set(HYBRID_WITH_CUDA OFF)
set(HYBRID_CUDA_LIBRARIES "")
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
set(CMAKE_CUDA_STANDARD 20)

if(HYBRID_CUDA AND HYBRID_CUDA_WHEELS)
  # CMake knows nvcc only inside a toolkit's layout, so the wheels' nvcc runs as a command of its own.
  file(GLOB HYBRID_CUDART ${HYBRID_CUDA_WHEELS}/lib/libcudart.so.*)
  file(GLOB HYBRID_CUFFT ${HYBRID_CUDA_WHEELS}/lib/libcufft.so.*)
  if(NOT HYBRID_CUDART OR NOT HYBRID_CUFFT)
    message(FATAL_ERROR "No libcudart or libcufft under ${HYBRID_CUDA_WHEELS}/lib")
  endif()
  set(HYBRID_CUDA_LIBRARIES ${HYBRID_CUDART} ${HYBRID_CUFFT} -Wl,-rpath-link,${HYBRID_CUDA_WHEELS}/lib)
  set(HYBRID_WITH_CUDA ON)
elseif(HYBRID_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
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
              -I${CMAKE_CURRENT_SOURCE_DIR} -I${HYBRID_CUDA_WHEELS}/include -I${HYBRID_CUDA_WHEELS}/include/cccl
              -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "Building CUDA object ${source} with the wheels' nvcc")
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
