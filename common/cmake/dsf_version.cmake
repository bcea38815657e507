# Writes the version stamp to one generated file, only when it changes, so that a new commit rebuilds one object.
execute_process(COMMAND git -C "${CMAKE_SOURCE_DIR}" describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE DSF_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT DSF_COMMIT)
  set(DSF_COMMIT unknown)
endif()
set(DSF_CUDA_VERSION none)
if(DSF_HAVE_CUDA)
  set(DSF_CUDA_VERSION "${CMAKE_CUDA_COMPILER_VERSION}")
endif()
configure_file("${CMAKE_SOURCE_DIR}/common/cmake/version.cpp.in" "${CMAKE_BINARY_DIR}/generated/version.cpp" @ONLY)
