# Helpers that keep every layer's CMakeLists.txt to a few lines.
#
#   auxtrail_layer(NAME [INPROCESS] SOURCES a.cc ... [DEPS layer-or-target ...])
#     One static library per layer: target auxtrail_NAME. INPROCESS marks the code that also runs inside
#     the traced program: no exceptions, no RTTI, no stack protector, no vector registers (translated code calls
#     it without saving them), no libc beyond what it calls by name.
#   auxtrail_layer(NAME HEADER_ONLY ...) for a layer with headers alone.
#   auxtrail_test(NAME SOURCES ... [DEPS ...] [LABELS ...])       a GoogleTest program
#   auxtrail_benchmark(NAME SOURCES ... [DEPS ...])               a Google Benchmark program
#   auxtrail_fuzzer(NAME SOURCES ... [DEPS ...])                  a libFuzzer target, built with AUXTRAIL_FUZZERS

# No vector registers, and no calls of libc functions that use them: compilers make strlen() out of a loop. clang 14 cannot compile <atomic> with -mgeneral-regs-only (it has inline functions that take
# floating point), so it gets the flags that keep it from using them on its own.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(AUXTRAIL_NO_VECTOR -mno-sse -mno-mmx -mno-implicit-float -fno-builtin)
else()
  set(AUXTRAIL_NO_VECTOR -mgeneral-regs-only -fno-builtin -fno-tree-loop-distribute-patterns)
endif()

add_library(auxtrail_options INTERFACE)
target_include_directories(auxtrail_options INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/auxtrail>)
target_compile_features(auxtrail_options INTERFACE cxx_std_20)
foreach(flag -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -fvisibility=hidden -fvisibility-inlines-hidden)
  target_compile_options(auxtrail_options INTERFACE $<BUILD_INTERFACE:${flag}>)
endforeach()
if(AUXTRAIL_WERROR)
  target_compile_options(auxtrail_options INTERFACE -Werror)
endif()
if(AUXTRAIL_SANITIZE)
  target_compile_options(auxtrail_options INTERFACE -fsanitize=${AUXTRAIL_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(auxtrail_options INTERFACE -fsanitize=${AUXTRAIL_SANITIZE})
  if(AUXTRAIL_SANITIZE MATCHES "undefined")
    target_compile_options(auxtrail_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
if(AUXTRAIL_FUZZERS)
  target_compile_options(auxtrail_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(auxtrail_deps target scope)
  foreach(dep ${ARGN})
    if(TARGET auxtrail_${dep})
      target_link_libraries(${target} ${scope} auxtrail_${dep})
    else()
      target_link_libraries(${target} ${scope} ${dep})
    endif()
  endforeach()
endfunction()

# The layers that `make install` gives to other programs, as auxtrail::NAME of the CMake package. The others serve
# the command line alone.
set(AUXTRAIL_PUBLIC_LAYERS base abi isa pt flow channel event pmu perf_event perfdata image decode history)
install(TARGETS auxtrail_options EXPORT auxtrail)

function(auxtrail_install_layer name)
  if(NOT name IN_LIST AUXTRAIL_PUBLIC_LAYERS)
    return()
  endif()
  set_target_properties(auxtrail_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS auxtrail_${name} EXPORT auxtrail ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/auxtrail)
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/auxtrail/${name}
    FILES_MATCHING PATTERN "*.h" PATTERN testing EXCLUDE PATTERN fuzz EXCLUDE)
endfunction()

function(auxtrail_layer name)
  cmake_parse_arguments(ARG "INPROCESS;HEADER_ONLY" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_HEADER_ONLY)
    add_library(auxtrail_${name} INTERFACE)
    target_link_libraries(auxtrail_${name} INTERFACE auxtrail_options)
    auxtrail_deps(auxtrail_${name} INTERFACE ${ARG_DEPS})
    auxtrail_install_layer(${name})
    return()
  endif()
  add_library(auxtrail_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(auxtrail_${name} PUBLIC auxtrail_options)
  auxtrail_deps(auxtrail_${name} PUBLIC ${ARG_DEPS})
  auxtrail_install_layer(${name})
  if(ARG_INPROCESS)
    target_compile_options(auxtrail_${name} PRIVATE
      -fno-exceptions -fno-rtti -fno-stack-protector -fno-threadsafe-statics ${AUXTRAIL_NO_VECTOR})
  endif()
endfunction()

function(auxtrail_test name)
  if(NOT AUXTRAIL_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  auxtrail_deps(${name} PRIVATE ${ARG_DEPS} auxtrail_options GTest::gmock_main)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  # A list of labels would come apart on its way into the generated test file; -L takes a pattern, and finds both.
  list(JOIN ARG_LABELS "+" labels)
  gtest_discover_tests(${name} PROPERTIES LABELS "${labels}" DISCOVERY_TIMEOUT 60)
endfunction()

function(auxtrail_benchmark name)
  if(NOT AUXTRAIL_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  auxtrail_deps(${name} PRIVATE ${ARG_DEPS} auxtrail_options benchmark::benchmark_main)
endfunction()

function(auxtrail_fuzzer name)
  if(NOT AUXTRAIL_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  auxtrail_deps(${name} PRIVATE ${ARG_DEPS} auxtrail_options)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()
