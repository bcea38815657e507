# The three kinds of target this project has.
#
#   dsf_library(<name> SOURCES a.cpp ... [DEPENDS base json ...] [PRIVATE OpenSSL::Crypto ...])
#       static library dsf_<name>, alias dsf::<name>, headers in include/dsf/<name>/. DEPENDS names dsf libraries (public),
#       PRIVATE names third-party targets, whose headers stay inside this library's .cpp files.
#   dsf_tool(<name> SOURCES ... DEPENDS ...)      library dsf_tool_<name> (testable) and the executable dsf-<name> (main.cpp)
#   dsf_test(<name> SOURCES ... DEPENDS ... [LABELS unit] [ARGS ...])   one doctest binary, one ctest entry
find_package(Threads REQUIRED)

add_library(dsf_warnings INTERFACE)
add_library(dsf::warnings ALIAS dsf_warnings)
set(DSF_HOST_WARNINGS -Wall -Wextra -Wconversion -Wshadow -Wold-style-cast)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105329: std::string concatenation is reported as overlapping memcpy.
  list(APPEND DSF_HOST_WARNINGS -Wno-restrict)
endif()
target_compile_options(dsf_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${DSF_HOST_WARNINGS};-Wpedantic>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${DSF_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)

function(_dsf_common target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:dsf_warnings>)
endfunction()

# What nearly every file includes, parsed once: by libraries, and by tests, whose own code is not optimised then. A precompiled header
# fits only targets with the same flags, hence two. Presets that are not about build time do without and so find a missing #include.
if(DSF_FAST_BUILD)
  set(common_headers <algorithm> <array> <atomic> <cstdint> <filesystem> <functional> <map> <memory> <mutex> <optional> <span> <string>
                     <string_view> <utility> <variant> <vector> <tl/expected.hpp>)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/pch.cpp" CONTENT "// Only here to own a precompiled header.\n")
  add_library(dsf_pch STATIC "${CMAKE_BINARY_DIR}/generated/pch.cpp")
  _dsf_common(dsf_pch)
  target_precompile_headers(dsf_pch PRIVATE ${common_headers})
  add_library(dsf_test_pch STATIC EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/generated/pch.cpp")
  _dsf_common(dsf_test_pch)
  set_target_properties(dsf_test_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(dsf_test_pch PRIVATE -fPIE -O0)
  target_precompile_headers(dsf_test_pch PRIVATE ${common_headers} <doctest/doctest.h>)
endif()

function(_dsf_precompiled target pch)
  if(DSF_FAST_BUILD)
    target_precompile_headers(${target} REUSE_FROM ${pch})
  endif()
endfunction()

function(dsf_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(dsf_${name} STATIC ${arg_SOURCES})
  add_library(dsf::${name} ALIAS dsf_${name})
  _dsf_common(dsf_${name})
  _dsf_precompiled(dsf_${name} dsf_pch)
  target_include_directories(dsf_${name} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/include")
  list(TRANSFORM arg_DEPENDS PREPEND "dsf::")
  target_link_libraries(dsf_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE})
endfunction()

function(dsf_tool name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(dsf_tool_${name} STATIC ${arg_SOURCES})
  add_library(dsf::tool_${name} ALIAS dsf_tool_${name})
  _dsf_common(dsf_tool_${name})
  _dsf_precompiled(dsf_tool_${name} dsf_pch)
  target_include_directories(dsf_tool_${name} PUBLIC "${CMAKE_SOURCE_DIR}")
  list(TRANSFORM arg_DEPENDS PREPEND "dsf::")
  target_link_libraries(dsf_tool_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE})
  add_executable(dsf-${name} main.cpp)
  _dsf_common(dsf-${name})
  target_link_libraries(dsf-${name} PRIVATE dsf_tool_${name} dsf::cli)
  set_target_properties(dsf-${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  dsf_install_tool(${name})
endfunction()

function(dsf_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE;LABELS;ARGS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name}_test ${arg_SOURCES})
  _dsf_common(${name}_test)
  _dsf_precompiled(${name}_test dsf_test_pch)
  if(DSF_FAST_BUILD)
    target_compile_options(${name}_test PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endif()
  list(TRANSFORM arg_DEPENDS PREPEND "dsf::")
  target_link_libraries(${name}_test PRIVATE ${arg_DEPENDS} dsf::test_support ${arg_PRIVATE})
  set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name}_test ${arg_ARGS})
  set(timeout 300)
  if(DSF_SANITIZE)
    set(timeout 1200)  # the engine is fifty times slower there
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${timeout})
endfunction()
