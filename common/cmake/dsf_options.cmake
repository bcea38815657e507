# Every switch of the build, in one place. AUTO means: use it when it is found, and say so in the summary.
set(DSF_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set(DSF_NCCL AUTO CACHE STRING "NCCL transport: AUTO, ON or OFF")
set_property(CACHE DSF_CUDA PROPERTY STRINGS AUTO ON OFF)
set_property(CACHE DSF_NCCL PROPERTY STRINGS AUTO ON OFF)
set(DSF_CUDA_ARCHITECTURES "90a-real;121" CACHE STRING "GPU architectures; 90a for wgmma, 121 without -real keeps PTX for later chips")
option(DSF_TESTS "Build the tests and the developer tools" ON)
option(DSF_WERROR "Turn warnings into errors" OFF)
option(DSF_FAST_BUILD "GCC: precompile the common headers and leave the tests' own code unoptimised" OFF)
option(DSF_TIDY "Run clang-tidy beside the compiler" OFF)
option(DSF_FUZZ "Build the fuzz targets against libFuzzer (Clang only); without it they replay their corpus" OFF)
set(DSF_SANITIZE "" CACHE STRING "Sanitizers, for example address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Build time on two cores counts; the files that are hot ask for -O3 themselves.
set(CMAKE_CXX_FLAGS_RELEASE "-O2" CACHE STRING "" FORCE)

find_program(DSF_CCACHE ccache)
if(DSF_CCACHE)
  # Paths below the source folder are hashed as relative ones: a second checkout finds what the first one compiled.
  set(launcher env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${DSF_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()
if(DSF_TIDY)
  set(CMAKE_CXX_CLANG_TIDY clang-tidy)
endif()

# Equal sources give equal objects wherever they are built. Asserts on debug builds come from DSF_CHECK, not NDEBUG.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)
if(DSF_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${DSF_SANITIZE}> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${DSF_SANITIZE})
endif()
